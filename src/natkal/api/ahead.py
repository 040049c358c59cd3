"""The rows after the last one of a run, as rows of a table."""

from typing import Any

import numpy as np

from natkal.reading.memory import open_data
from natkal.runs.forecasting import forecasts, future_rows
from natkal.runs.session import Session


def forecast_rows(session: Session, horizon: int, future: Any, level: float, key: str | None) -> list[dict[str, Any]]:
    """One dict for each step, target and key."""
    given = None
    if future is not None:
        given = future_rows(session, open_data(future, [target.name for target in session.schema.targets]))
    share, rows = f"{100 * level:g}", []
    for made in forecasts(session, horizon, future=given, key=key):
        target = session.schema.targets[made.target]
        where = {} if session.schema.key is None else {session.schema.key: made.key}
        if len(session.schema.targets) > 1:
            where["target"] = target.name
        low, high = np.quantile(made.paths, [(1 - level) / 2, (1 + level) / 2], axis=0).tolist()
        for at, step in enumerate(made.steps):
            row = {**where, "step": step["step"]}
            if made.coming.times:
                row["time"] = made.coming.times[at]
            if target.classes:
                row["predicted"] = target.classes[step["predicted"]]
                row |= {f"p({name})": p for name, p in zip(target.classes, step["probabilities"], strict=False)}
            else:
                row |= {"predicted": step["predicted"], f"low_{share}": low[at], f"high_{share}": high[at]}
                row |= {f"q{round(100 * float(q)):02d}": value for q, value in step["quantiles"].items()}
            rows.append(row)
    return rows
