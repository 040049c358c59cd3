"""Rows that could not be used: why, how often, and when that is too often."""

from pathlib import Path

from natkal.errors import StreamError, did_you_mean
from natkal.settings.settings import Counts
from natkal.tables.schema.infer import ONE_HOT, Schema
from natkal.tables.schema.rows import Reject

LOUD_SHARE = 0.01
"""A run in which more than this share of the rows was rejected, or of the steps refused, says so at its end."""


def count_reasons(reasons: dict[str, int], rejects: list[Reject]) -> None:
    """Add rejects to the counts, by what their reasons have in common."""
    for reject in rejects:
        kind = reject.reason.partition(":")[0] if reject.reason.startswith("column") else reject.reason
        reasons[kind] = reasons.get(kind, 0) + 1


def check_count(counts: Counts, limit: int | None, path: Path) -> None:
    """Refuse a run with more rejects than it may have."""
    if limit is not None and counts.rejected > limit:
        raise StreamError(
            f"{counts.rejected:,} of {counts.read:,} rows were rejected, more than --max-rejects {limit:,}; see {path}"
        )


def column_warnings(schema: Schema) -> list[str]:
    """What became of columns in a way that a person may not expect."""
    found = []
    shared = [feature.name for feature in schema.features if feature.kind == "hashed"]
    if shared:
        names = ", ".join(shared[:5]) + (", ..." if len(shared) > 5 else "")
        found.append(
            f"values of {names} share {ONE_HOT} numbers, as there are more of them: --features {shared[0]}:category "
            f"gives each its own, --key {shared[0]} a model of its own"
        )
    used = [feature.name for feature in schema.features]
    for name in schema.awaited:
        if name not in used:
            there = [*used, *schema.ignored]
            found.append(f"--features: no row has a column {name!r}; {did_you_mean(name, there)}".rstrip("; "))
    return found


def warnings(counts: Counts, reasons: dict[str, int], refused: int, place: str | Path) -> list[str]:
    """What a person should know at the end of a run. `refused`: steps that filters could not take."""
    found = []
    if counts.read and not counts.learned and not counts.rejected:
        found.append(f"nothing was learned: none of the {counts.read:,} rows has a target")
    if counts.read and counts.rejected > LOUD_SHARE * counts.read:
        reason = max(reasons, key=lambda name: reasons[name])
        found.append(
            f"{counts.rejected / counts.read:.1%} of the rows were rejected, most often: {reason}; "
            f"see {place}, and --features, --task or --classes to say what a column is"
        )
    if refused > LOUD_SHARE * counts.learned:
        found.append(
            f"{refused:,} times in {counts.learned:,} rows a filter could not take its step, because it was "
            "not finite, or had to start again: look for extreme values, or try --model linear"
        )
    return found
