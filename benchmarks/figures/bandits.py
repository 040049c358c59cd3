"""The tables of `docs/bandits.md`, from the results of `python -m benchmarks bandits --json`."""

from pathlib import Path
from typing import Any

from benchmarks.figures import between_marks, markdown

RIVALS = ("LinUCB", "LinTS", "neural-linear", "mabwiser LinUCB", "mabwiser LinTS", "Vowpal Wabbit")


def write(results: dict[str, Any], docs: Path) -> list[Path]:
    """Every part that the results have."""
    page = docs / "bandits.md"
    if "tables" in results:
        between_marks(page, "tables", _regrets(results["tables"]["rows"]))
    if "open-bandit" in results:
        between_marks(page, "open-bandit", _open_bandit(results["open-bandit"]["rows"]))
    networks = ("mnist", "mnist-curvatures", "mnist-adamw")
    learners = [row for part in networks if part in results for row in results[part]["rows"]]
    if learners:
        between_marks(page, "mnist", _mnist(learners))
    return [page]


def _regrets(rows: list[dict[str, Any]]) -> str:
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    lines = []
    for problem in problems:
        found = {row["learner"]: row["regret"] for row in rows if row["problem"] == problem}
        least = min(found.values())
        cells = [f"**{found[name]:,.0f}**" if found[name] == least else f"{found[name]:,.0f}" for name in found]
        by_name = dict(zip(found, cells, strict=True))
        lines.append([problem, by_name["natkal"], *(by_name.get(name, "") for name in RIVALS)])
    return markdown(["problem", "natkal, defaults", *RIVALS], lines)


def _open_bandit(rows: list[dict[str, Any]]) -> str:
    lines = [
        [
            row["campaign"],
            f"{row['logged_random']:.4f}",
            f"{row['logged_thompson']:.4f}",
            f"{row['inverse_propensity']:.4f} ({row['inverse_propensity_interval']})",
            f"{row['doubly_robust']:.4f} ({row['doubly_robust_interval']})",
            f"{row['effective_rows']:.0f}",
        ]
        for row in rows
    ]
    header = ["campaign", "log, random", "log, Thompson", "inverse propensity", "doubly robust", "effective rows"]
    return markdown(header, lines)


def _mnist(rows: list[dict[str, Any]]) -> str:
    columns = ("reward", "standard_error", "steps", "trials")
    lines = [[row["learner"], *(f"{row[name]:,.0f}" for name in columns)] for row in rows]
    return markdown(["learner", "mean total reward", "standard error", "steps", "trials"], lines)
