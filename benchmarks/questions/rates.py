"""Is gamma = eta the best Fisher decay? Is 1/(t+1) too slow?"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

import natkal as nk
from benchmarks.questions.cases import Case, cases
from benchmarks.questions.measure import Job, Part, ask, learner_scan
from natkal.paper.dictionary import fan_in_prior
from natkal.typing import Array, Params

CURVATURES: dict[str, Callable[[], Any]] = {
    "dense": nk.dense,
    "blocks": nk.blocks,
    "kronecker": nk.kronecker,
    "quasi-diagonal": nk.quasi_diagonal,
    "diagonal": nk.diagonal,
}
FLOOR = 1e-3
RATIOS = (0.1, 0.3, 1.0, 3.0, 10.0)
CONSTANTS = (1e-3, 1e-2, 1e-1)


def scaled_prior(params: Params, scale: Array | float) -> Params:
    """`scale` / fan-in."""
    return jax.tree.map(lambda variance: scale * variance, fan_in_prior(params))


def decay(report: Callable[[str], None]) -> dict[str, Any]:
    """eta_t = max(1/(t+1), 1e-3); gamma_t a multiple of eta_t (at most 1/2), or constant as is common practice."""
    settings = {f"gamma = {ratio:g} eta": {"ratio": ratio, "constant": 0.0} for ratio in RATIOS}
    settings |= {f"gamma = {constant:g}": {"ratio": 0.0, "constant": constant} for constant in CONSTANTS}

    def jobs() -> Iterator[Job]:
        for case in cases():
            for name in CURVATURES if case.model == "mlp" else ("dense", "diagonal"):

                def build(case: Case, s: dict[str, Array], params: Params, name: str = name) -> Any:
                    def rate(t: Array) -> Array:
                        return jnp.maximum(1 / (t + 1), FLOOR)

                    def gamma(t: Array) -> Array:
                        # gamma = eta itself must stay eta at the first step, where it is 1/2.
                        return jnp.where(s["ratio"] > 0, jnp.minimum(s["ratio"] * rate(t), 0.5), s["constant"])

                    return nk.online(
                        case.model_of(params),
                        prior_cov=scaled_prior(params, 1.0),
                        curvature=CURVATURES[name](),
                        rates=nk.learning_rate(rate, fisher_decay=gamma),
                    )

                yield Job(case, name, [Part(settings, learner_scan(build, case))])

    return ask(jobs(), lambda label: "gamma = 1 eta", report)


SCHEDULES: dict[str, dict[str, float]] = {
    **{f"{c:g}/(t+{c:g})": {"kind": 0.0, "value": c} for c in (0.5, 1.0, 2.0, 4.0)},
    **{f"(t+1)^-{a:g}": {"kind": 1.0, "value": a} for a in (0.5, 0.7, 0.9)},
    **{f"1/(t+1), at least {f:g}": {"kind": 2.0, "value": f} for f in (1e-3, 3e-3, 1e-2)},
    **{f"fading {f:g}": {"kind": 3.0, "value": f} for f in (1e-3, 3e-3, 1e-2)},
}


def keep_of(setting: dict[str, Array], t: Array) -> Array:
    """1 - lambda_t = eta_{t-1}/eta_t - eta_{t-1} (Prop. 3) of each schedule; a fading is its own."""

    def rate(t: Array) -> Array:
        kind, value = setting["kind"], setting["value"]
        never = 1 / (t + 1)
        return jnp.select([kind == 0, kind == 1], [value / (t + value), (t + 1) ** -value], jnp.maximum(never, value))

    before = rate(t - 1)
    keep = before / rate(t) - before
    exact = jnp.where(jnp.abs(keep - 1) < 1e-6, 1.0, keep)  # 1/(t+1) forgets nothing, whatever rounding says
    return jnp.where(setting["kind"] == 3, 1 - setting["value"], exact)


def schedule(report: Callable[[str], None]) -> dict[str, Any]:
    """Learning rates for the natural gradient with gamma = eta, dense; the prior forgotten with the data, or kept."""

    def jobs() -> Iterator[Job]:
        for case in cases():
            for group, weight in (("prior forgotten", None), ("prior kept", 1.0)):

                def build(case: Case, s: dict[str, Array], params: Params, weight: float | None = weight) -> Any:
                    return nk.online(
                        case.model_of(params),
                        prior_cov=scaled_prior(params, 1.0),
                        rates=nk.fading(lambda t: 1 - keep_of(s, t)),
                        prior_weight=weight,
                    )

                # A rate below 1/(t+1) sharpens the past instead of fading it: there is nothing to give back to a prior.
                fades = {label: s for label, s in SCHEDULES.items() if weight is None or label != "0.5/(t+0.5)"}
                yield Job(case, group, [Part(fades, learner_scan(build, case))])

    return ask(jobs(), lambda label: "1/(t+1)", report)
