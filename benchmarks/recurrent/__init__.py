"""`python -m benchmarks recurrent`: forecasts, classic tasks, what the state correction does, what a step costs."""

from collections.abc import Callable
from typing import Any

PARTS = ("forecast", "auto", "member", "classic", "correction", "cost", "diagonal-cost", "memory", "ordered")
OPTIONS = {"gaps": ("2,8,32,64,128", "gaps of the part memory"), "seeds": ("3", "seeds of the part memory")}


def run_part(
    part: str, report: Callable[[str], None], gaps: str = OPTIONS["gaps"][0], seeds: str = OPTIONS["seeds"][0]
) -> dict[str, Any]:
    """One part's numbers."""
    match part:
        case "forecast" | "auto":
            from benchmarks.recurrent.contest import contest

            return contest(report, untuned=part == "auto")
        case "classic":
            from benchmarks.recurrent.classic import counting, influence_balancing

            report("influence balancing")
            balancing = influence_balancing()
            report("a^n b^n")
            return {"influence_balancing": balancing, "counting": counting()}
        case "correction":
            from benchmarks.recurrent.correction import correction

            return correction(report)
        case "ordered":
            from benchmarks.recurrent.ordered import ordered

            return ordered(report)
        case "member":
            from benchmarks.recurrent.member import member

            return member(report)
        case "diagonal-cost":
            from benchmarks.recurrent.cost import diagonal_cost

            report("cost of a step of diagonal cells")
            return diagonal_cost()
        case "memory":
            from benchmarks.recurrent.memory import memory

            return memory(report, tuple(int(gap) for gap in gaps.split(",")), seeds=int(seeds))
        case _:
            from benchmarks.recurrent.cost import cost

            report("cost of a step")
            return cost()


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """What a person reads of the results."""
    found = []
    for part, own in (("forecast", "natkal at one setting"), ("auto", "nk.auto untuned")):
        if part in results:
            title = f"One step ahead, one pass: {own}, rivals at their best for each series and score"
            columns = ("series", "points", "method", "mse", "nll", "setting")
            found.append((title, results[part]["rows"], columns))
    if "classic" in results:
        balancing, counting = results["classic"]["influence_balancing"], results["classic"]["counting"]
        title = "Influence balancing: loss in the first and last twentieth of the steps"
        found.append((title, balancing["rows"], ("method", "first", "last", "converged")))
        title = f"a^n b^n: nats per symbol (the source itself: {counting['best_possible']:.3f})"
        found.append((title, counting["rows"], ("method", "all", "last_tenth")))
    if "correction" in results:
        study = results["correction"]
        title = f"State correction: {study['settings']} settings x {study['seeds']} seeds on each series"
        columns = ("series", "step", "state_correction", "diverged", "mse", "nll", "median_mse")
        found.append((title, study["rows"], columns))
    if "cost" in results:
        title = (
            f"Cost of a step against one product P x; it grows as n^{results['cost']['growth_exponent_in_units']:.1f}"
        )
        found.append((title, results["cost"]["rows"], ("units", "parameters", "step_ms", "read_ms", "ratio")))
    if "diagonal-cost" in results:
        powers = ", ".join(f"{n}: {p:.2f}" for n, p in results["diagonal-cost"]["growth_exponent_in_units"].items())
        title = f"Cost of a step of diagonal cells, exact sensitivities, blocks by unit; power of units {powers}"
        found.append((title, results["diagonal-cost"]["rows"], ("cell", "units", "parameters", "step_ms")))
    if "member" in results:
        title = "The default mixture on a series, without and with its recurrent group: log loss, milliseconds a row"
        columns = ("series", "points", "without", "with", "ms_without", "ms_with")
        found.append((title, results["member"]["rows"], columns))
    if "ordered" in results:
        title = "Streams in order, one filter, log loss: the state correction on and off, forgetting within the prior"
        columns = ("stream", "cell", "correction", *(f"fading {fading:g}" for fading in results["ordered"]["fadings"]))
        found.append((title, results["ordered"]["rows"], columns))
    if "memory" in results:
        title = "Recall a bit after a gap, one pass: nats per recalled bit in the last fifth (guessing: 0.693)"
        found.append((title, results["memory"]["rows"], ("gap", "steps", *results["memory"]["methods"])))
    return found
