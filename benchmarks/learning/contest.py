"""One stream: everybody's scores, the bank's promise, and what a change of units does."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.learning import ours, rivals
from benchmarks.learning.ours import Ours
from benchmarks.learning.rivals import RIVALS, Best
from benchmarks.streams.data import stream
from benchmarks.streams.rivals import best as best_kept
from benchmarks.streams.scores import Forecast, log_loss, scores
from benchmarks.streams.stream import Stream
from benchmarks.streams.tables import STILL

Report = Callable[[str], None]
UNITS = (1e-3, 1e3)
CHECKED = 2_000
"""The checks of units and of the bank's inequality run on so many rows at most."""
SETTLED = 5_000


def on(name: str, report: Report) -> dict[str, Any]:
    """A row for each method, and two checks of ours."""
    found = stream(name)
    automatic = ours.automatic(found)
    rows = [_row(found, "nk.auto", "defaults", automatic.forecast, automatic.us_per_row)]
    report(f"{name}: nk.auto {rows[-1]['log_loss']:.4f}")
    rows.append(_row(found, "nk.online", "defaults", *ours.single(found)))
    report(f"{name}: nk.online {rows[-1]['log_loss']:.4f}")
    for rival, how in RIVALS.items():
        rows.append(_of(found, rival, rivals.best(how, found)))
        report(f"{name}: {rival} {rows[-1]['log_loss']:.4f} at {rows[-1]['setting']}")
    rows += river(found)
    first = found.head(CHECKED)
    here = automatic if len(first.targets) == len(found.targets) else ours.automatic(first)
    report(f"{name}: other units, no share")
    return {
        "rows": rows,
        "bank": {"shared": promise(automatic), "unshared": promise(ours.automatic(first, share=0.0))},
        "units": units(first, here),
    }


def river(found: Stream) -> list[dict[str, Any]]:
    """River's model with the lowest log loss on this stream, as `python -m benchmarks streams` keeps it."""
    kept = best_kept(found.name, "log_loss", "river ")
    if kept is None:
        return []
    setting = f"{kept['method']}, {kept['setting']}"
    rows = len(found.targets)
    us_per_row = 1e6 * kept["seconds"] / rows
    return [
        {"stream": found.name, "rows": rows, **kept, "method": "river", "setting": setting, "us_per_row": us_per_row}
    ]


def promise(bank: Ours) -> dict[str, Any]:
    """How much the bank lost to its best expert per row, and what was promised: ln(E)/N where nothing is shared."""
    excess = log_loss(bank.forecast) - float(np.min(np.nan_to_num(-bank.experts, nan=np.inf).mean(axis=0)))
    return {
        "experts": bank.experts.shape[1],
        "excess": excess,
        "bound": bank.bound,
        "holds": bool(excess <= bank.bound + 1e-6),
        "reseeded": bank.reseeded,
    }


def units(found: Stream, here: Ours) -> dict[str, Any]:
    """Log loss with the inputs multiplied by 1e-3 and by 1e3, as a relative change."""
    losses = {f"{factor:g}": log_loss(ours.automatic(found, factor).forecast) for factor in UNITS}
    base = log_loss(here.forecast)
    change = max(abs(loss - base) / abs(base) for loss in losses.values())
    return {"log_loss": losses, "relative_change": change, "holds": bool(change < 0.01)}


def still(report: Report) -> dict[str, Any]:
    """What being ready for drift costs where nothing drifts: the mixture against the best of its own experts."""
    rows = []
    for name in STILL:
        bank = ours.automatic(stream(name))
        settled = -bank.forecast.log_prob[-SETTLED:].mean()
        best = np.min(-bank.experts[-SETTLED:].mean(axis=0))
        rows.append({"stream": name, "settled_loss": float(settled), "best_expert": float(best)})
        report(f"{name}: {settled:.4f}, best expert {best:.4f}")
    return {"rows": rows}


def _of(found: Stream, method: str, best: Best) -> dict[str, Any]:
    return _row(found, method, best.setting, best.forecast, best.us_per_row)


def _row(found: Stream, method: str, setting: str, forecast: Forecast, us_per_row: float) -> dict[str, Any]:
    return {
        "stream": found.name,
        "rows": len(found.targets),
        "method": method,
        **scores(forecast, found),
        "us_per_row": us_per_row,
        "setting": setting,
    }
