"""`python -m benchmarks streams`: `natkal learn` at its defaults against rivals at their best setting in hindsight.

Every row is predicted before it is learned. Rivals' figures come from `rivals.json`; natkal runs here and now.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.streams.data import GROUPS, stream
from benchmarks.streams.uci import PUBLISHED

PARTS = (*GROUPS, "memory", "time")
OPTIONS = {
    "cache": ("", "run the rivals instead of natkal, keep their scores in this folder, and rewrite rivals.json"),
    "only": ("", "only the streams whose name has this in it"),
}
MEMORIES = ("128kB", "1MB", "8MB")
Report = Callable[[str], None]
Tables = Iterator[tuple[str, list[dict[str, Any]], tuple[str, ...]]]


def run_part(part: str, report: Report, cache: str, only: str) -> dict[str, Any]:
    """The streams of one group; `memory`: the generators at three limits of the state; `time`: `rate` as it is."""
    if part == "time":
        return _times(report)
    names = [name for name in GROUPS["generated" if part == "memory" else part] if only in name]
    if cache:
        return {"rows": [] if part == "memory" else list(_rivals(names, cache, report))}
    if part == "memory":
        return {"rows": [_row(name, report, "--memory", size) for size in MEMORIES for name in names]}
    return {"rows": [_row(name, report) for name in names]}


def _times(report: Report) -> dict[str, Any]:
    from benchmarks import rate

    defaults = {name: default for name, (default, _) in rate.OPTIONS.items()}
    return {"parts": {part: rate.run_part(part, report, **defaults) for part in rate.PARTS}}


def _rivals(names: list[str], cache: str, report: Report) -> Iterator[dict[str, Any]]:
    """Run what the cache does not have; the row counts what it has then."""
    from benchmarks.streams import rivals

    for name in names:
        yield {"stream": name, "settings": rivals.run(stream(name), Path(cache), report)}
    rivals.condense(Path(cache))


def _row(name: str, report: Report, *options: str) -> dict[str, Any]:
    """natkal on one stream, and beside each of its scores the best rival's by that score."""
    from benchmarks.streams import ours, rivals

    found = stream(name)
    kept = rivals.kept()["streams"].get(name)
    row = {"stream": name, "rows": len(found.targets), "options": " ".join(options), **ours.run(found, *options)}
    if kept is not None and kept["digest"] != found.digest():
        row["rivals"] = "of other rows, left out: run them with --cache"
    elif kept is not None:
        row["rivals"] = {score: best for score in rivals.COMPARED if (best := rivals.best(name, score))}
    said = row.get("failed") or f"log loss {row['log_loss']:.4f}"
    report(f"{name}: {said} ({row['seconds']:.1f} s)")
    return row


def tables(results: dict[str, Any]) -> Tables:
    """For each group a table of each score: natkal's, the best rival's, and on how many streams natkal is ahead."""
    from benchmarks import rate

    for part, result in results.items():
        if part == "time":
            yield from rate.tables(result["parts"])
        elif result["rows"] and "settings" in result["rows"][0]:
            yield "Rivals' settings that are kept", result["rows"], ("stream", "settings")
        else:
            yield from _group(part, result["rows"])


def _group(part: str, rows: list[dict[str, Any]]) -> Tables:
    failed = [row for row in rows if "failed" in row]
    if failed:
        yield f"{part}: no scores", failed, ("stream", "failed")
    shown = ("rmedse",) if part == "outliers" else ("log_loss", "accuracy", "rmse", "mae")
    for score in shown:
        lines = [_line(row, score) for row in rows if score in row and "failed" not in row]
        if lines:
            ahead = sum(line["ahead"] == "yes" for line in lines)
            title = f"{part}, {score.replace('_', ' ')}: natkal is ahead on {ahead} of {len(lines)}"
            yield title, lines, tuple(lines[0])
    covered = [row for row in rows if "coverage_90" in row]
    if covered:
        lines = [_coverage(row) for row in covered]
        yield f"{part}, coverage and mean width of intervals", lines, tuple(lines[0])


def _line(row: dict[str, Any], score: str) -> dict[str, Any]:
    """One stream by one score."""
    rivals = row.get("rivals")
    best = rivals.get(score) if isinstance(rivals, dict) else None
    line = {"stream": row["stream"], "rows": row["rows"], "natkal": row[score]}
    if row["options"]:
        line["options"] = row["options"]
    if score == "rmedse":
        line |= PUBLISHED[row["stream"].removeprefix("uci ").removesuffix(", outliers")]
    if best is None:
        return line | {"best": "", "rival": str(rivals or "none"), "ahead": ""}
    ahead = row[score] >= best[score] if score == "accuracy" else row[score] <= best[score]
    if score == "rmedse":
        ahead = ahead and row[score] <= line["best robust filter"]
    rival = ", ".join(part for part in (best["method"], best["setting"]) if part)
    return line | {"best": best[score], "rival": rival, "ahead": "yes" if ahead else "no"}


def _coverage(row: dict[str, Any]) -> dict[str, Any]:
    """Shares of targets inside natkal's intervals, and the lowest and highest of the stream's four quarters."""
    quarters = row["quarters_90"]
    line = {"stream": row["stream"], "coverage_90": row["coverage_90"]}
    line |= {"lowest_quarter": min(quarters), "highest_quarter": max(quarters), "width_90": row["width_90"]}
    return line | {name: row.get(name, "") for name in ("coverage_95", "width_95")}
