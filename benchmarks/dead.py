"""`python -m benchmarks dead`: does a network fall silent? Architectures x curvatures x prior scales on 8 x 8 digits.

Each cell learns the same rows once and passes if its log loss on the last quarter of them is not above that of a
constant prediction (the class frequencies). The priors of one cell's row run side by side under `vmap`. A full
covariance is tried up to `DENSE_UP_TO` parameters. Exits 1 where a cell fails.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import natkal as nk
from benchmarks.dead_networks import NETWORKS
from benchmarks.size import sized

PARTS = tuple(NETWORKS)
PRIORS = (0.3, 1.0, 3.0, 10.0, 30.0)
OPTIONS = {"rows": (sized(400, 20), "rows that each cell learns")}
DENSE_UP_TO = 1_000
CURVATURES: dict[str, Callable[[], Any]] = {
    "kronecker": nk.kronecker,
    "diagonal": nk.diagonal,
    "low rank": lambda: nk.low_rank(10),
    "blocks": nk.blocks,
    "dense": nk.dense,
}


def run_part(part: str, report: Callable[[str], None], rows: int = sized(400, 20)) -> dict[str, Any]:
    """One architecture under every curvature: the loss on the last quarter for each prior."""
    inputs, targets, constant = digits(rows)
    params, apply = NETWORKS[part](np.random.default_rng(1))
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    found = []
    for name, curvature in CURVATURES.items():
        if name == "dense" and size > DENSE_UP_TO:
            continue
        losses = learn(params, apply, curvature(), inputs, targets)
        report(f"dead: {part}, {name}: {' '.join(f'{loss:.2f}' for loss in losses)}, constant {constant:.2f}")
        cells = {f"prior_{prior:g}": float(loss) for prior, loss in zip(PRIORS, losses, strict=True)}
        alive = bool(np.all(losses <= constant))
        found.append({"network": part, "parameters": size, "curvature": name, **cells, "constant": constant,
                      "alive": alive})  # fmt: skip
    return {"rows": found, "passed": all(row["alive"] for row in found)}


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """A line for each architecture and curvature."""
    rows = [row for result in results.values() for row in result["rows"]]
    return [("log loss on the last quarter of the rows, by prior scale times 1/fan-in", rows, tuple(rows[0]))]


def digits(rows: int) -> tuple[Any, Any, float]:
    """The first rows in a fixed order, standardised, and the loss of the class frequencies."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))[:rows]
    images = (data.images[order] - data.images.mean()) / data.images.std()
    targets = data.target[order]
    shares = np.bincount(targets, minlength=10) / len(targets)
    constant = float(-np.sum(shares * np.log(np.maximum(shares, 1e-9))))
    return jnp.asarray(images, jnp.float32), jnp.asarray(targets), constant


def learn(params: Any, apply: Callable[..., Any], curvature: Any, inputs: Any, targets: Any) -> np.ndarray:
    """The mean loss on the last quarter of the rows, for each prior scale."""
    model = nk.static_model(apply, params, nk.families.Categorical(10, minimal=False))

    def one(scale: jax.Array) -> jax.Array:
        prior = jax.tree.map(lambda variance: variance * scale, nk.fan_in_prior(params))
        learner = nk.online(model, prior_cov=prior, curvature=curvature, rates=nk.fading(1e-3))

        def step(state: Any, row: Any) -> Any:
            state, info = learner.step(state, *row)
            return state, info.log_prob

        return jax.lax.scan(step, learner.init(), (inputs, targets))[1]

    log_prob = jax.jit(jax.vmap(one))(jnp.asarray(PRIORS, jnp.float32))
    return -np.asarray(log_prob, np.float64)[:, -len(targets) // 4 :].mean(axis=1)
