"""`python -m benchmarks questions`: what the paper leaves open, by experiment; answers in `docs/questions.md`."""

from collections.abc import Callable, Iterator
from typing import Any

PARTS = ("decay", "prior_weight", "prior_scale", "schedule", "fisher", "averaging")
QUESTIONS = {
    "decay": "Is gamma = eta the best Fisher decay? Against gamma = eta",
    "prior_weight": "Does keeping the prior (Prop. 4) help? Against the same start, forgotten",
    "prior_scale": "Is J_0 = diag(fan-in) the right scale? Against P_0 = 1/fan-in",
    "schedule": "Is 1/(t+1) too slow? Against 1/(t+1)",
    "fisher": "Exact, sampled or outer-product Fisher matrix? Against the exact one",
    "averaging": "Does averaging match the natural gradient? Each at its best in hindsight, against 3/fan-in",
}


def run_part(part: str, report: Callable[[str], None]) -> dict[str, Any]:
    """One question's numbers."""
    from benchmarks.questions import averaging, fisher, priors, rates

    ways = {
        "decay": rates.decay,
        "prior_weight": priors.prior_weight,
        "prior_scale": priors.prior_scale,
        "schedule": rates.schedule,
        "fisher": fisher.estimates,
        "averaging": averaging.averaging,
    }
    return ways[part](report)


def tables(results: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """A table for each question: differences in log loss, negative is better."""
    for part, found in results.items():
        if part == "averaging":
            yield (
                QUESTIONS[part],
                found["best"],
                ("stream", "model", "setting", "log_loss", "difference", "low", "high"),
            )
        else:
            columns = ("model", "group", "setting", "median_difference", "mean_difference", "low", "high")
            yield QUESTIONS[part], found["summary"], (*columns, "better", "worse", "cases")
