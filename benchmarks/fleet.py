"""`python -m benchmarks fleet`: independent learners advanced together, all at once and as rows happen to arrive."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from benchmarks.size import sized
from benchmarks.timing import interleaved

PARTS = ("sweep", "ragged")
PARAMETERS = 20
COUNT = sized(100_000, 200)
Report = Callable[[str], None]


def make_fleet(count: int) -> Any:
    """Linear regressions with 20 weights, float32."""
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(PARAMETERS, jnp.float32), nk.families.Gaussian(1.0))
    return nk.fleet(nk.online(model, prior_cov=1.0, rates=nk.fading(1e-3)), count)


def sweep(count: int) -> dict[str, Any]:
    """Every learner gets one row; beside it, only touching every number of the states."""
    fleet = make_fleet(count)
    keys = np.arange(count)
    inputs = jax.random.normal(jax.random.key(0), (count, PARAMETERS), jnp.float32)
    targets = jnp.ones(count, jnp.float32)
    held = [fleet.init(jnp.zeros(PARAMETERS, jnp.float32))]

    def update() -> Any:
        held[0], _ = fleet.update_unchecked(held[0], keys, inputs, targets)
        return held[0].members.params

    quiet = [fleet.init(jnp.zeros(PARAMETERS, jnp.float32))]

    def learn() -> Any:
        quiet[0] = fleet.learn(quiet[0], inputs, targets)
        return quiet[0].members.params

    covs = [jnp.ones((count, PARAMETERS, PARAMETERS), jnp.float32)]
    touch = jax.jit(lambda covs: covs * 0.999, donate_argnums=0)

    def floor() -> Any:
        covs[0] = touch(covs[0])
        return covs[0]

    times = interleaved({"update": update, "learn": learn, "floor": floor})
    return {
        "learners": count,
        "parameters": PARAMETERS,
        "learn_per_s": count / times["learn"],
        "update_per_s": count / times["update"],
        "learn_ms": 1e3 * times["learn"],
        "touch_ms": 1e3 * times["floor"],
        "ratio_to_touch": times["learn"] / times["floor"],
    }


def ragged(count: int, rows: int) -> dict[str, Any]:
    """Rows of learners drawn at random, some of them several times."""
    fleet = make_fleet(count)
    rng = np.random.default_rng(0)
    keys = rng.integers(0, count, rows)
    inputs, targets = rng.normal(size=(rows, PARAMETERS)).astype(np.float32), np.ones(rows, np.float32)
    held = [fleet.init(jnp.zeros(PARAMETERS, jnp.float32))]

    def update() -> Any:
        held[0], _ = fleet.update(held[0], keys, inputs, targets)
        return held[0].members.params

    seconds = interleaved({"update": update}, rounds=4)["update"]
    most = int(np.bincount(keys).max())
    return {"learners": count, "rows": rows, "most_per_learner": most, "updates_per_s": rows / seconds}


def run_part(part: str, report: Report) -> dict[str, Any]:
    """One part's numbers."""
    report(f"fleet: {part}")
    return {"rows": [sweep(COUNT) if part == "sweep" else ragged(COUNT, COUNT)]}


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """What a person reads of the results."""
    titles = {"sweep": "One row for every learner", "ragged": "Rows as they arrive, through the checked call"}
    return [(titles[part], rows["rows"], tuple(rows["rows"][0])) for part, rows in results.items()]
