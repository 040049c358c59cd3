"""`python -m benchmarks gpu`: the dense step on a GPU against one read of P, with P in full and as one triangle.

The model is a softmax regression, so that nearly all of a step is the matrix. Run on a CPU it takes small sizes, to be
tried, not to be reported.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from benchmarks.dense import scanned
from benchmarks.timing import Held, floor, interleaved, one_read
from natkal.curvature.kernels import GPU_FLOAT32
from natkal.curvature.kernels.gpu import Triton

PARTS = ("product", "step", "fleet", "largest")
OUTPUTS = 10
CAPACITY = 256
Report = Callable[[str], None]


def on_gpu() -> bool:
    """Whether there is a GPU to measure."""
    return jax.default_backend() == "gpu"


def make_learner(inputs: int, kernel: str | None) -> tuple[nk.Learner, Any]:
    """Softmax regression: 10 (inputs + 1) parameters."""
    params = {"weight": jnp.zeros((inputs, OUTPUTS), jnp.float32), "bias": jnp.zeros(OUTPUTS, jnp.float32)}
    model = nk.static_model(
        lambda p, u: u @ p["weight"] + p["bias"], params, nk.families.Categorical(OUTPUTS, minimal=False)
    )
    return nk.online(model, prior_cov=0.1, rates=nk.fading(1e-4), curvature=nk.dense(kernel=kernel)), params


def product(report: Report) -> dict[str, Any]:
    """X P for 10 rows X, and folds of 256 rows: by XLA with P in full, by Triton with one triangle of tiles.

    Errors are the largest of |X P - exact| / (|X| |P|), with variances from 1e-7 to 1.
    """
    size = 100_000 if on_gpu() else 700
    algorithm = GPU_FLOAT32 if on_gpu() else "highest"
    layout = Triton() if on_gpu() else Triton.interpreted()
    x = jax.random.normal(jax.random.key(0), (OUTPUTS, size), jnp.float32)
    by_xla = jax.jit(lambda matrix, x: jnp.matmul(matrix, x.T, precision=algorithm).T)
    report(f"product: {size:,} parameters, P in full")
    matrix = jax.jit(lambda: jnp.full((size, size), 0.5, jnp.float32))()
    times = interleaved({**one_read(matrix), "XLA": lambda: by_xla(matrix, x)}, rounds=5)
    del matrix
    least = floor(times)
    report("product: one triangle")
    base = jax.jit(layout.pack)(jnp.ones(size, jnp.float32))
    multiply = jax.jit(layout.multiply)
    times["one triangle"] = interleaved({"it": lambda: multiply(base, x)}, rounds=5)["it"]
    rows = 1e-4 * jax.random.normal(jax.random.key(1), (CAPACITY, size), jnp.float32)
    no_limit = jnp.full((), jnp.inf, jnp.float32)
    held = Held(layout.fold, base, rows, jnp.asarray(CAPACITY, jnp.int32), jnp.ones((), jnp.float32), no_limit)
    del base
    per_step = interleaved({"it": held}, rounds=3)["it"] / (CAPACITY // OUTPUTS)
    times["a fold of one triangle, its share of a step"] = per_step
    errors = {"XLA": _error(by_xla), "one triangle": _error(lambda cov, x: multiply(layout.pack(cov), x))}
    return {
        "rows": [
            {"how": name, "ms": 1e3 * times[name], "ratio_to_floor": times[name] / least, "error": errors.get(name)}
            for name in times
        ]
    }


def _error(multiply: Callable[[Any, Any], Any]) -> float:
    size = 1_500 if on_gpu() else 200
    rng = np.random.default_rng(0)
    deviations = 10.0 ** rng.uniform(-3.5, 0, size)
    factor = deviations[:, None] * rng.normal(size=(size, 2 * size)) / np.sqrt(2 * size)
    cov = (factor @ factor.T).astype(np.float32)
    x = (rng.normal(size=(OUTPUTS, size)) / deviations).astype(np.float32)
    found = np.asarray(multiply(jnp.asarray(cov), jnp.asarray(x)), float)
    return float(np.max(np.abs(found - x.astype(float) @ cov) / (np.abs(x).astype(float) @ np.abs(cov))))


def step(report: Report) -> dict[str, Any]:
    """Whole steps in a scan, P in full and as one triangle; every call folds as often as its steps ask for."""
    rows = []
    for inputs, steps in ((99, 100), (299, 100), (999, 100), (2_999, 100), (9_999, 75)) if on_gpu() else ((69, 4),):
        matrix = jnp.ones((10 * inputs + 10, 10 * inputs + 10), jnp.float32)
        least = floor(interleaved(one_read(matrix), rounds=5))
        del matrix
        for kernel in ("deferred", "gpu"):
            report(f"step: {10 * inputs + 10:,} parameters, {kernel}")
            learner, params = make_learner(inputs, kernel)
            u = jax.random.normal(jax.random.key(1), (steps, inputs), jnp.float32) / jnp.sqrt(inputs)
            y = jax.random.randint(jax.random.key(2), (steps,), 0, OUTPUTS)
            state = jax.jit(learner.init)(params)
            run = Held(scanned(learner), state, u, y)
            del state
            seconds = interleaved({"it": run}, rounds=3)["it"] / steps
            rows.append(
                {
                    "parameters": learner.model.size,
                    "kernel": kernel,
                    "chosen": nk.dense().kernel_for(learner.model.size).name == kernel,
                    "step_ms": 1e3 * seconds,
                    "floor_ms": 1e3 * least,
                    "ratio_to_floor": seconds / least,
                    "temporary_GB": run.temporary_bytes() / 1e9,
                    "finite": bool(jnp.all(jnp.isfinite(run.state.params["weight"]))),
                }
            )
            del run
    return {"rows": rows}


def largest(report: Report) -> dict[str, Any]:
    """As many parameters as one triangle lets into the memory."""
    inputs, steps = (17_999, 25) if on_gpu() else (69, 2)
    learner, params = make_learner(inputs, "gpu")
    report(f"largest: {learner.model.size:,} parameters")
    u = jax.random.normal(jax.random.key(1), (steps, inputs), jnp.float32) / jnp.sqrt(inputs)
    run = Held(scanned(learner), jax.jit(learner.init)(params), u, jnp.zeros(steps, jnp.int32))
    seconds = interleaved({"it": run}, rounds=2)["it"] / steps
    finite = bool(jnp.all(jnp.isfinite(run.state.params["weight"])))
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(run.state))
    row = {"parameters": learner.model.size, "step_ms": 1e3 * seconds, "finite": finite}
    return {"rows": [{**row, "state_GB": held / 1e9, "temporary_GB": run.temporary_bytes() / 1e9}]}


def run_part(part: str, report: Report) -> dict[str, Any]:
    """One part's numbers."""
    match part:
        case "product":
            return product(report)
        case "step":
            return step(report)
        case "fleet":
            from benchmarks.fleet import sweep

            report("fleet")
            return {"rows": [sweep(100_000 if on_gpu() else 1_000)]}
        case _:
            return largest(report)


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """What a person reads of the results."""
    titles = {
        "product": "10 rows times P",
        "step": "A step of the dense filter",
        "fleet": "A fleet",
        "largest": "As large as the memory",
    }
    return [(titles[part], rows["rows"], tuple(rows["rows"][0])) for part, rows in results.items()]
