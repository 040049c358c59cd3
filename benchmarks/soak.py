"""`python -m benchmarks soak`: ten million float32 steps, and a million without excitation. Exits 1 on failure."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from benchmarks.size import sized

PARTS = ("long", "unexcited")
SIZE, BLOCK, BLOCKS = 10, sized(100_000, 500), sized(100, 2)
FADING, UNEXCITED_STEPS = 0.01, sized(1_000_000, 2_000)


def run_part(part: str, report: Callable[[str], None]) -> dict[str, Any]:
    """One part's numbers, and whether they are as they must be."""
    report(f"soak: {part}")
    rows = long_run() if part == "long" else unexcited()
    return {"rows": rows, "passed": all(row["passed"] for row in rows)}


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """The numbers of each part."""
    titles = {
        "long": "float32 steps without forgetting: distance from the exact posterior mean in posterior deviations",
        "unexcited": f"float32 steps at fading {FADING}, prior kept: variances of directions never seen, of 1",
    }
    return [(titles[part], result["rows"], tuple(result["rows"][0])) for part, result in results.items()]


def long_run() -> list[dict[str, Any]]:
    """1e7 steps in float32, no forgetting, against the exact posterior mean in float64."""
    truth = np.linspace(-1.0, 1.0, SIZE)
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(SIZE, jnp.float32), nk.families.Gaussian(1.0))
    learner = nk.online(model, prior_cov=1e4, curvature=nk.square_root())
    state = learner.init(jnp.zeros(SIZE, jnp.float32))
    precision, moment = np.eye(SIZE) / 1e4, np.zeros(SIZE)

    @jax.jit
    def learn(state, inputs, targets):
        return jax.lax.scan(lambda s, row: (learner.step(s, *row)[0], None), state, (inputs, targets))[0]

    for block in range(BLOCKS):
        rng = np.random.default_rng(block)
        inputs = rng.normal(size=(BLOCK, SIZE)).astype(np.float32)
        targets = (inputs @ truth + rng.normal(size=BLOCK)).astype(np.float32)
        state = learn(state, inputs, targets)
        wide = inputs.astype(np.float64)
        precision, moment = precision + wide.T @ wide, moment + wide.T @ targets
    deviation = np.sqrt(np.diag(np.linalg.inv(precision)))
    worst = float((np.abs(np.asarray(state.params) - np.linalg.solve(precision, moment)) / deviation).max())
    exact = int(state.steps) == BLOCK * BLOCKS
    good = bool(np.isfinite(worst) and worst < 0.5 and exact)
    return [{"steps": int(state.steps), "worst_deviation": worst, "counter_exact": exact, "passed": good}]


def unexcited() -> list[dict[str, Any]]:
    """1e6 steps that never excite nine of ten directions, prior kept at weight 1."""
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(SIZE, jnp.float32), nk.families.Gaussian(1.0))
    rows = []
    for curvature in (nk.dense(), nk.square_root()):
        learner = nk.online(model, rates=nk.fading(FADING), prior_weight=1.0, curvature=curvature)
        u = jnp.zeros(SIZE, jnp.float32).at[0].set(1.0)
        step = jax.jit(
            lambda s, learner=learner, u=u: jax.lax.fori_loop(
                0, UNEXCITED_STEPS, lambda _, s: learner.step(s, u, jnp.float32(1.0))[0], s
            )
        )
        variances = np.diag(learner.covariance(step(learner.init(jnp.zeros(SIZE, jnp.float32)))))[1:]
        low, high = float(variances.min()), float(variances.max())
        passed = bool(low > 0.5 and high < 2)
        rows.append({"curvature": type(curvature).__name__, "lowest": low, "highest": high, "passed": passed})
    return rows
