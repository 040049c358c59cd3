"""What a run looks like: one HTML file that needs nothing else."""

from pathlib import Path

from natkal.app.report.facts import gather
from natkal.app.report.page import page
from natkal.app.session.session import Session


def write_report(session: Session, path: Path | None = None, *, seconds: float | None = None) -> Path:
    """Write the report of a run, `report.html` in its folder unless told otherwise; returns where."""
    where = session.folder / "report.html" if path is None else path
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(page(session, gather(session), seconds), encoding="utf-8")
    return where


__all__ = ["write_report"]
