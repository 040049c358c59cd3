"""`natkal bench gpu`: the dense step on a GPU against one read of P, with P in full and as one triangle.

The model is a softmax regression, so that nearly all of a step is the matrix. Run on a CPU it takes small sizes, to be
tried, not to be reported.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from natkal.bench.dense import scanned
from natkal.bench.timing import Held, floor, interleaved, one_read
from natkal.curvature.kernels import GPU_FLOAT32
from natkal.curvature.kernels.gpu import Triton

PARTS = ("product", "step", "fleet", "largest")
OUTPUTS = 10
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
    """X P for 10 rows X: XLA's product, and one triangle of tiles under several settings."""
    size = 100_000 if on_gpu() else 700
    test = min(1_500, size)
    rng = jax.random.key(0)
    x = jax.random.normal(rng, (OUTPUTS, size), jnp.float32)
    report(f"product: {size:,} parameters, P in full")
    matrix = jax.jit(lambda key: jax.random.uniform(key, (size, size), jnp.float32))(rng)
    algorithm = GPU_FLOAT32 if on_gpu() else None
    by_xla = jax.jit(lambda matrix, x: jnp.matmul(matrix, x.T, precision=algorithm))
    times = interleaved({**one_read(matrix), "XLA": lambda: by_xla(matrix, x)}, rounds=5)
    del matrix
    least = floor(times)
    rows = [
        {"how": name, "ms": 1e3 * times[name], "ratio_to_floor": times[name] / least, "error": 0.0} for name in times
    ]
    settings = [(64, 8, 64, 8), (64, 8, 64, 4), (64, 4, 64, 4), (64, 4, 128, 8)]
    for side, group, chunk, warps in settings if on_gpu() else [(16, 2, 4, 4)]:
        layout = Triton(side=side, group=group, chunk=chunk, warps=warps, interpret=not on_gpu())
        name = f"triangle {side} x {side}, group {group}, chunk {chunk}, {warps} warps"
        report(f"product: {name}")
        try:
            small = jax.random.normal(jax.random.key(2), (test, test), jnp.float32)
            small = small + small.T
            found = np.asarray(jax.jit(layout.multiply)(layout.pack(small), x[:, :test]), float)
            reference = np.asarray(x[:, :test], float) @ np.asarray(small, float)
            error = float(np.linalg.norm(found - reference) / np.linalg.norm(reference))
            shape = jax.eval_shape(layout.pack, jax.ShapeDtypeStruct((size,), jnp.float32)).shape
            tiles = jax.jit(lambda key, shape=shape: jax.random.uniform(key, shape, jnp.float32))(rng)
            multiply = jax.jit(layout.multiply)
            seconds = interleaved({"it": lambda f=multiply, tiles=tiles: f(tiles, x)}, rounds=5)["it"]
            report(f"product: {1e3 * seconds:.2f} ms, {seconds / least:.2f} of one read, error {error:.1e}")
            rows.append({"how": name, "ms": 1e3 * seconds, "ratio_to_floor": seconds / least, "error": error})
            del tiles
        except Exception as problem:  # a setting that the compiler refuses is a finding, not the end
            report(f"product: {name}: {str(problem)[:300]}")
    return {"rows": rows}


def step(report: Report) -> dict[str, Any]:
    """Whole steps in a scan, P in full and as one triangle."""
    inputs = 9_999 if on_gpu() else 69
    steps = 64 if on_gpu() else 4
    rows = []
    matrix = jnp.ones((10 * inputs + 10, 10 * inputs + 10), jnp.float32)
    least = floor(interleaved(one_read(matrix), rounds=5))
    del matrix
    for kernel in ("deferred", "gpu"):
        report(f"step: {kernel}")
        try:
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
                    "step_ms": 1e3 * seconds,
                    "floor_ms": 1e3 * least,
                    "ratio_to_floor": seconds / least,
                    "temporary_GB": run.temporary_bytes() / 1e9,
                }
            )
            del run
        except Exception as problem:
            report(f"step: {kernel}: {str(problem)[:600]}")
    return {"rows": rows}


def largest(report: Report) -> dict[str, Any]:
    """As many parameters as one triangle lets into the memory."""
    inputs, steps = (17_999, 16) if on_gpu() else (69, 2)
    learner, params = make_learner(inputs, "gpu")
    report(f"largest: {learner.model.size:,} parameters")
    u = jax.random.normal(jax.random.key(1), (steps, inputs), jnp.float32) / jnp.sqrt(inputs)
    run = Held(scanned(learner), jax.jit(learner.init)(params), u, jnp.zeros(steps, jnp.int32))
    seconds = interleaved({"it": run}, rounds=2)["it"] / steps
    finite = bool(jnp.all(jnp.isfinite(run.state.params["weight"])))
    return {"rows": [{"parameters": learner.model.size, "step_ms": 1e3 * seconds, "finite": finite}]}


def run_part(part: str, report: Report) -> dict[str, Any]:
    """One part's numbers."""
    match part:
        case "product":
            return product(report)
        case "step":
            return step(report)
        case "fleet":
            from natkal.bench.fleet import sweep

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
