"""Is J_0 = diag(fan-in) the right scale? Does the prior weight of Prop. 4 help?"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

import natkal as nk
from benchmarks.questions.cases import Case, cases
from benchmarks.questions.measure import Job, Part, ask, learner_scan
from benchmarks.questions.rates import scaled_prior
from natkal.typing import Array, Params

SCALES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
WEIGHTS = (0.03, 0.1, 0.3, 1.0, 3.0)
FADINGS = (1e-3, 1e-2)


def prior_scale(report: Callable[[str], None]) -> dict[str, Any]:
    """P_0 = c / fan-in, or c alone whatever the layer; no forgetting, with the library's cap and without."""
    settings = {f"{c:g}/fan-in": {"scale": c, "shaped": 1.0} for c in SCALES}
    settings |= {f"{c:g}": {"scale": c, "shaped": 0.0} for c in SCALES}

    def jobs() -> Iterator[Job]:
        for case in cases():
            for group, cap in (("dense, cap 3", 3.0), ("dense, no cap", None)):

                def build(case: Case, s: dict[str, Array], params: Params, cap: float | None = cap) -> Any:
                    shaped = scaled_prior(params, s["scale"])
                    prior = jax.tree.map(lambda v: jnp.where(s["shaped"] > 0, v, s["scale"]), shaped)
                    return nk.online(case.model_of(params), prior_cov=prior, step_control=nk.step_control(cap=cap))

                yield Job(case, group, [Part(settings, learner_scan(build, case))])

    return ask(jobs(), lambda label: "1/fan-in", report)


def prior_weight(report: Callable[[str], None]) -> dict[str, Any]:
    """Sigma_0 = 1/fan-in at weight n, kept, against the same start P_0 = Sigma_0 / n forgotten with the data."""

    def part(case: Case, kept: bool) -> Part:
        def build(case: Case, s: dict[str, Array], params: Params) -> Any:
            return nk.online(
                case.model_of(params),
                prior_cov=scaled_prior(params, 1.0 if kept else 1 / s["weight"]),
                rates=nk.fading(s["fading"]),
                prior_weight=s["weight"] if kept else None,
            )

        word = "kept" if kept else "forgotten"
        settings = {
            f"n = {n:g}, {word}, fading {fading:g}": {"fading": fading, "weight": n}
            for fading in FADINGS
            for n in WEIGHTS
        }
        return Part(settings, learner_scan(build, case))

    jobs = [Job(case, "dense", [part(case, kept) for kept in (True, False)]) for case in cases()]
    return ask(jobs, lambda label: label.replace("kept", "forgotten"), report)
