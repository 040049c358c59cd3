"""The tables of docs/learning.md, from files that `python -m benchmarks learning --json` wrote, some parts in each."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.learning import NAMES

METHODS = ("nk.auto", "nk.online", "SGD", "RMSprop", "Adam", "AdamW", "IVON", "river")


def merged(paths: list[str]) -> dict[str, Any]:
    """All parts of all files; a later file replaces a part of an earlier one."""
    results: dict[str, Any] = {}
    for path in paths:
        results |= json.loads(Path(path).read_text())
    return results


def found(results: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Rows by stream and method."""
    rivers = {row["stream"]: row for row in results.get("river", {"rows": []})["rows"]}
    rows = {name: {row["method"]: row for row in results[name]["rows"]} for name in NAMES if name in results}
    for name, own in rows.items():
        if name in rivers:
            own["river"] = rivers[name]
    return rows


def table(header: list[str], rows: Iterator[list[str]]) -> str:
    """Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


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


def main(*paths: str) -> None:
    """Print them."""
    results = merged(list(paths))
    rows = found(results)
    print(table(["stream", "rows", *METHODS], losses(rows)), end="\n\n")
    header = ["stream", "calibration error", "coverage", "behind best expert, no share", "with share", "reseeded"]
    print(table([*header, "change with units"], checks(results, rows)), end="\n\n")
    print(table(["stream", "method", "settled loss", "lost after a drift", "rows to settle"], drifts(rows)), end="\n\n")
    for row in results.get("still", {"rows": []})["rows"]:
        print(f"{row['stream']}: {row['settled_loss']:.4f}, its best expert {row['best_expert']:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
