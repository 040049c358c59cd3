"""The run that a checkpoint holds, or that another command left, as one that can be served."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from natkal.errors import StreamError
from natkal.runs import checkpoint
from natkal.runs.decisions import DecisionSession
from natkal.runs.folder import take_over
from natkal.runs.session import Session
from natkal.serve.served import Served
from natkal.serve.served_bandit import ServedBandit
from natkal.serve.served_table import ServedTable
from natkal.settings.serve import Limits

DECISIONS = "decisions"
"""The field that only the header of a bandit's checkpoint has."""


def restored(
    path: Path,
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    run: Path,
    limits: Limits,
    model: str | None,
) -> Served:
    """The served run that wrote this checkpoint."""
    if DECISIONS in header:
        return ServedBandit(DecisionSession.restored(path, header, arrays, run), limits)
    session = Session.restored(path, header, arrays, run, model)
    take_over(session)
    return ServedTable(session, limits)


def as_left(run: Path, limits: Limits, model: str | None) -> tuple[Served, str | None]:
    """The run as `natkal learn` or `natkal decide` left it, and a warning where the last checkpoint is damaged."""
    found = checkpoint.find(run)
    if found is None:
        raise StreamError(f"{run}: there is no checkpoint to resume from")
    path, header, arrays, warning = found
    return restored(path, header, arrays, run, limits, model), warning


def command_of(header: Mapping[str, Any]) -> str:
    """The command that wrote a checkpoint with this header."""
    return "natkal decide" if DECISIONS in header else "natkal learn"
