"""One stream: everybody's scores, the bank's inequality, and what a change of units does."""

from collections.abc import Callable
from typing import Any

import numpy as np

from natkal.bench.learning import ours, rivals, river_rivals
from natkal.bench.learning.rivals import RIVALS, Best
from natkal.bench.learning.scores import log_loss, scores
from natkal.bench.learning.streams import STILL, Stream, stream

Report = Callable[[str], None]
UNITS = (1e-3, 1e3)
OURS = "nk.auto"


def on(name: str, report: Report) -> dict[str, Any]:
    """A row for each method, and two checks of ours."""
    found = stream(name)
    automatic = ours.automatic(found)
    rows = [_row(found, OURS, "defaults", automatic.forecast, automatic.us_per_row)]
    report(f"{name}: {OURS} {rows[-1]['log_loss']:.4f}")
    default = ours.default_online(found)
    rows.append(_row(found, "nk.online", "defaults", default.forecast, default.us_per_row))
    report(f"{name}: nk.online {rows[-1]['log_loss']:.4f}")
    for rival, how in RIVALS.items():
        rows.append(_of(found, rival, rivals.best(how, found)))
        report(f"{name}: {rival} {rows[-1]['log_loss']:.4f} at {rows[-1]['setting']}")
    return {"rows": rows, "guarantee": guarantee(automatic), "units": units(found, automatic)}


def river(report: Report, names: tuple[str, ...]) -> dict[str, Any]:
    """River's best model on every stream."""
    return {"rows": [_of(found, "river", river_rivals.best(found, report)) for found in map(stream, names)]}


def guarantee(bank: ours.Ours) -> dict[str, Any]:
    """Whether the mixture lost at most ln(M)/N more than its best member, as it must on any stream."""
    assert bank.members is not None
    best = float(np.min(-bank.members.mean(axis=1)))
    count, rows = bank.members.shape
    allowed = float(np.log(count) / rows)
    excess = log_loss(bank.forecast) - best
    return {
        "members": count,
        "best_member": best,
        "excess": excess,
        "allowed": allowed,
        "holds": bool(excess <= allowed + 1e-6),
    }


def units(found: Stream, here: ours.Ours) -> dict[str, Any]:
    """Log loss with the inputs multiplied by 1e-3 and by 1e3, as a relative change."""
    losses = {f"{factor:g}": log_loss(ours.automatic(found, factor).forecast) for factor in UNITS}
    base = log_loss(here.forecast)
    change = max(abs(loss - base) / abs(base) for loss in losses.values())
    return {"log_loss": losses, "relative_change": change, "holds": bool(change < 0.01)}


def still(report: Report) -> dict[str, Any]:
    """What being ready for drift costs where nothing drifts: the mixture against its own best member."""
    rows = []
    for name in STILL:
        found = stream(name)
        bank = ours.automatic(found)
        assert bank.members is not None
        settled = -bank.forecast.log_prob[-5000:].mean()
        member = np.min(-bank.members[:, -5000:].mean(axis=1))
        rows.append({"stream": name, "settled_loss": float(settled), "best_member": float(member)})
        report(f"{name}: {settled:.4f}, best member {member:.4f}")
    return {"rows": rows}


def _of(found: Stream, method: str, best: Best) -> dict[str, Any]:
    return _row(found, method, best.setting, best.forecast, best.us_per_row)


def _row(found: Stream, method: str, setting: str, forecast: Any, us_per_row: float) -> dict[str, Any]:
    return {
        "stream": found.name,
        "rows": len(found.targets),
        "method": method,
        **scores(forecast, found),
        "us_per_row": us_per_row,
        "setting": setting,
    }
