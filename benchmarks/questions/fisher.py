"""Exact, sampled, or outer-product Fisher matrix?"""

from collections.abc import Callable
from typing import Any

import natkal as nk
from benchmarks.questions.cases import Case, cases
from benchmarks.questions.measure import Job, Part, ask, learner_scan
from benchmarks.questions.rates import CURVATURES, scaled_prior
from natkal.typing import Array, Params

ESTIMATES: dict[str, Callable[[], Any]] = {
    "exact": nk.exact,
    "sampled, 1 draw": lambda: nk.sampled(1),
    "sampled, 5 draws": lambda: nk.sampled(5),
    "outer product": nk.outer_product,
}
SCALES = (0.3, 1.0, 3.0)
FADING = 1e-3
STRUCTURES = ("dense", "blocks", "kronecker", "diagonal")


def estimates(report: Callable[[str], None]) -> dict[str, Any]:
    """The same filter with each estimate, at P_0 = c / fan-in for three c, fading 1e-3."""

    def part(case: Case, curvature: str, name: str) -> Part:
        def build(case: Case, s: dict[str, Array], params: Params) -> Any:
            return nk.online(
                case.model_of(params),
                prior_cov=scaled_prior(params, s["scale"]),
                curvature=CURVATURES[curvature](),
                rates=nk.fading(FADING),
                fisher=ESTIMATES[name](),
            )

        return Part({f"{name}, {c:g}/fan-in": {"scale": c} for c in SCALES}, learner_scan(build, case))

    jobs = [
        Job(case, curvature, [part(case, curvature, name) for name in ESTIMATES])
        for case in cases()
        for curvature in (STRUCTURES if case.model == "mlp" else ("dense", "diagonal"))
    ]
    return ask(jobs, lambda label: f"exact, {label.split(', ')[-1]}", report)
