"""The tables of docs/learning.md, from `python -m benchmarks learning --json`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import between_marks, markdown
from benchmarks.learning import NAMES

METHODS = ("nk.auto", "nk.online", "SGD", "RMSprop", "Adam", "AdamW", "IVON", "river")


def write(results: dict[str, Any], docs: Path) -> list[Path]:
    """Put the tables between their marks."""
    page = docs / "learning.md"
    rows = {name: {row["method"]: row for row in results[name]["rows"]} for name in NAMES if name in results}
    between_marks(page, "losses", markdown(["stream", "rows", *METHODS], list(losses(rows))))
    header = ["stream", "calibration error", "coverage", "behind best expert, no share", "with share", "reseeded"]
    between_marks(page, "checks", markdown([*header, "change with units"], list(checks(results, rows))))
    header = ["stream", "method", "settled loss", "lost after a drift", "rows to settle"]
    between_marks(page, "drifts", markdown(header, list(drifts(rows))))
    if "still" in results:
        said = [
            f"{row['stream']}: {row['settled_loss']:.4f}, its best expert {row['best_expert']:.4f}"
            for row in results["still"]["rows"]
        ]
        between_marks(page, "still", "; ".join(said) + ".")
    return [page]


def losses(rows: dict[str, dict[str, dict[str, Any]]]) -> Iterator[list[str]]:
    """Log losses, the lowest in bold."""
    for name, own in rows.items():
        best = min(row["log_loss"] for row in own.values())
        cells = []
        for method in METHODS:
            loss = own[method]["log_loss"] if method in own else None
            text = "" if loss is None else f"{loss:.4f}" if loss < 1000 else f"{loss:.1e}"
            cells.append(f"**{text}**" if loss == best else text)
        yield [name, str(next(iter(own.values()))["rows"]), *cells]


def checks(results: dict[str, Any], rows: dict[str, dict[str, dict[str, Any]]]) -> Iterator[list[str]]:
    """Calibration, coverage, the bank's promise and a change of units."""
    for name, own in rows.items():
        ours, bank = own["nk.auto"], results[name]["bank"]
        yield [
            name,
            f"{ours['calibration_error']:.3f}" if "calibration_error" in ours else "",
            f"{ours['coverage_90']:.3f}" if "coverage_90" in ours else "",
            *(f"{bank[way]['excess']:.5f} of {bank[way]['bound']:.5f}" for way in ("unshared", "shared")),
            str(bank["shared"]["reseeded"]),
            f"{100 * results[name]['units']['relative_change']:.3f} %",
        ]


def drifts(rows: dict[str, dict[str, dict[str, Any]]]) -> Iterator[list[str]]:
    """Settled loss, nats lost after a drift, rows until settled."""
    for name, own in rows.items():
        for method in METHODS:
            if method in own and "reaction_rows" in own[method]:
                row = own[method]
                yield [
                    name,
                    method,
                    f"{row['settled_loss']:.4f}",
                    f"{row['excess_after_drift']:.0f}",
                    f"{row['reaction_rows']:.0f}",
                ]
