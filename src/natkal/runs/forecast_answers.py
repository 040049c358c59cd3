"""What is told of forecasts, once for every front end: entries, and flat rows of a table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from natkal.runs.forecasting import Forecast

if TYPE_CHECKING:
    from natkal.runs.session import Session


def entries(session: "Session", made: Sequence[Forecast], level: float = 0.9) -> list[dict[str, Any]]:
    """One object for each step, target and key: where it belongs, and what is expected."""
    found = []
    share = f"{100 * level:g}"
    for one in made:
        target = session.schema.targets[one.target]
        where: dict[str, Any] = {} if session.schema.key is None else {session.schema.key: one.key}
        if len(session.schema.targets) > 1:
            where["target"] = target.name
        limits = np.quantile(one.paths, [(1 - level) / 2, (1 + level) / 2], axis=0).tolist()
        for at, told in enumerate(one.steps):
            time = {"time": one.coming.times[at]} if one.coming.times else {}
            if target.classes:
                own: dict[str, Any] = {"predicted": target.classes[told["predicted"]]}
                own |= {f"p({name})": p for name, p in zip(target.classes, told["probabilities"], strict=False)}
            else:
                own = {"predicted": told["predicted"], f"low_{share}": limits[0][at], f"high_{share}": limits[1][at]}
                own["quantiles"] = {f"{q:g}": value for q, value in told["quantiles"].items()}
            found.append({**where, "step": told["step"], **time, **own})
    return found


def flat(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry as a row of a table: quantiles are columns q05 .. q95."""
    row = {name: value for name, value in entry.items() if name != "quantiles"}
    return row | {f"q{round(100 * float(q)):02d}": value for q, value in entry.get("quantiles", {}).items()}
