"""What a run looks like: one HTML file that needs nothing else."""

from pathlib import Path

from natkal.app.report.facts import gather
from natkal.app.report.page import page
from natkal.app.session.session import Session


def write_report(session: Session, path: Path | None = None, *, seconds: float | None = None) -> Path:
    """Write the report of a run, `report.html` in its folder unless told otherwise; returns where."""
    where = session.folder / "report.html" if path is None else path
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(report_text(session, seconds=seconds), encoding="utf-8")
    return where


def report_text(session: Session, *, seconds: float | None = None) -> str:
    """The report of a run as one HTML document."""
    return page(session, gather(session), seconds)


__all__ = ["report_text", "write_report"]
