"""The rows after the last one of a run, as rows of a table."""

import warnings
from typing import Any

from natkal.api.calls import in_python
from natkal.reading.memory import open_data
from natkal.runs.forecast_answers import entries, flat
from natkal.runs.forecasting import forecasts, future_rows, warnings_of
from natkal.runs.session import Session


def forecast_rows(session: Session, horizon: int, future: Any, level: float, key: str | None) -> list[dict[str, Any]]:
    """One dict for each step, target and key; warns of what is not known ahead."""
    given = None
    if future is not None:
        given = future_rows(session, open_data(future, [target.name for target in session.schema.targets]))
    made = list(forecasts(session, horizon, future=given, key=key))
    for warning in warnings_of(session, made, given):
        warnings.warn(in_python(warning), stacklevel=3)
    return [flat(entry) for entry in entries(session, made, level)]
