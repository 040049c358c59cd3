"""`python -m benchmarks learning`: one pass over real streams, natkal's defaults against tuned rivals.

One part for each stream, and `still` (the drifting streams without their drifts). The row of river is its best model in
hindsight, from the rivals that `python -m benchmarks streams` keeps.
"""

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.streams.tables import TABLES

NAMES = tuple(TABLES)
PARTS = (*NAMES, "still")
COLUMNS = ("method", "log_loss", "accuracy", "calibration_error", "rmse", "coverage_90", "us_per_row", "setting")
DRIFT_COLUMNS = ("stream", "method", "settled_loss", "excess_after_drift", "reaction_rows")


def run_part(part: str, report: Callable[[str], None]) -> dict[str, Any]:
    """One part's numbers."""
    from benchmarks.learning import contest

    match part:
        case "still":
            return contest.still(report)
        case _:
            return contest.on(part, report)


def tables(results: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """One table for each stream, lowest log loss first; then the checks, the drifts, and the streams without."""
    streams = [name for name in NAMES if name in results]
    for name in streams:
        rows = sorted(results[name]["rows"], key=lambda row: row["log_loss"])
        columns = tuple(column for column in COLUMNS if column in rows[0])
        yield f"{name}, one pass over {rows[0]['rows']} rows", rows, columns
    if streams:
        checks = [
            {
                "stream": name,
                "behind_best_expert": results[name]["bank"]["shared"]["excess"],
                "allowed": results[name]["bank"]["shared"]["bound"],
                "without_share": results[name]["bank"]["unshared"]["excess"],
                "allowed_then": results[name]["bank"]["unshared"]["bound"],
                "bounds_hold": all(results[name]["bank"][way]["holds"] for way in ("shared", "unshared")),
                "reseeded": results[name]["bank"]["shared"]["reseeded"],
                "change_with_units": results[name]["units"]["relative_change"],
            }
            for name in streams
        ]
        yield "What must hold of nk.auto", checks, tuple(checks[0])
    drifting = [row for name in streams for row in results[name]["rows"] if "reaction_rows" in row]
    if drifting:
        yield "Drift: loss once settled, nats lost after a drift, rows until settled again", drifting, DRIFT_COLUMNS
    if "still" in results:
        rows = results["still"]["rows"]
        yield "No drift: loss over the last 5,000 rows", rows, tuple(rows[0])
