"""What a run looks like: one HTML file that needs nothing else."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from natkal.report.facts import gather
from natkal.report.fans import MAX_FANS
from natkal.report.page import page
from natkal.runs.forecasting import Forecast, forecasts
from natkal.runs.session import Session

if TYPE_CHECKING:
    from natkal.runs.decisions import DecisionSession


def write_report(
    session: Session,
    path: Path | None = None,
    *,
    seconds: float | None = None,
    fans: Sequence[Forecast] | None = None,
) -> Path:
    """Write the report of a run, `report.html` in its folder unless told otherwise; returns where."""
    return _written(session.folder, path, report_text(session, seconds=seconds, fans=fans))


def report_text(session: Session, *, seconds: float | None = None, fans: Sequence[Forecast] | None = None) -> str:
    """The report of a run as one HTML document.

    `fans` are forecasts to show; a run that scores forecasts shows those after its last row unless given.
    """
    if fans is None and session.settings.horizon is not None:
        fans = list(islice(forecasts(session, session.settings.horizon), MAX_FANS))
    return page(session, gather(session), seconds, fans or [])


def write_decisions_report(session: "DecisionSession", path: Path | None = None) -> Path:
    """Write the report of a run of `natkal decide`; returns where."""
    from natkal.report.decisions import decisions_page  # decisions are imported where there are some

    return _written(session.folder, path, decisions_page(session))


def _written(folder: Path, path: Path | None, text: str) -> Path:
    where = folder / "report.html" if path is None else path
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(text, encoding="utf-8")
    return where


__all__ = ["report_text", "write_decisions_report", "write_report"]
