"""`python -m benchmarks forecasts`: twelve steps ahead on four series, against AutoARIMA, AutoETS and seasonal naive.

natkal learns the series one value at a time and forecasts from the origins of the second half. The rivals (package
statsforecast) are given the true period and fitted on the same past. `refits` is how often each is fitted again on the
way: as often as fits into natkal's own time (compilation included), and into a hundred times that (at most at every
origin). Between two fits a rival takes the new values on with its old parameters. Scores are means over origins and
steps; CRPS is taken from the quantiles 5, 10, .. 95 percent. `coverage` is that of the 90 percent interval, the
smallest and the largest over the steps.

`m4` is all of M4 hourly by the protocol of GIFT-Eval (`forecast_tasks.py`): `nk.learn` and its forecast, nothing said.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import forecast_tasks
from benchmarks.streams import series
from natkal.forecasting.combination import Kept
from natkal.forecasting.paths import QUANTILES, crps, table_paths

SERIES = {
    "sunspots": series.sunspots,
    "CO2": series.co2,
    "airline": series.airline_passengers,
    "el-nino": series.el_nino,
}
PARTS = (*SERIES, "m4")
OPTIONS = {
    "model": ("auto", "the model of natkal: auto (the default) or linear (a bank of linear members)"),
    "origins": (120, "how many origins of the second half are forecast from"),
    "every": (1, "of M4 hourly, only one of so many series"),
    "limit": (120, "a rival that would need more seconds than this for one fit is left out"),
}
HORIZON = 12
WEEKS_PER_MONTH = 4
PUBLISHED = ("auto_arima", "auto_ets", "auto_theta")
MIDDLE = QUANTILES.index(0.5)


def run_part(
    part: str, report: Callable[[str], None], model: str = "auto", origins: int = 120, limit: int = 120, every: int = 1
) -> dict[str, Any]:
    """One series: a row for natkal, and one for each rival and budget. Of M4, all series and the published table."""
    if part == "m4":
        return _m4(report, int(every))
    found = SERIES[part]()
    values, period = found.targets.astype(float), found.period
    if part == "CO2":  # months: AutoARIMA with a period of 52 weeks takes hours
        values, period = values[: len(values) // WEEKS_PER_MONTH * WEEKS_PER_MONTH], 13
        values = values.reshape(-1, WEEKS_PER_MONTH).mean(axis=1)
    first = len(values) // 2
    places = np.unique(np.linspace(first, len(values) - HORIZON, int(origins)).astype(int))
    report("natkal")
    started = time.perf_counter()
    rows = [_row("natkal", "", _ours(values, places, model), values, places)]
    seconds = time.perf_counter() - started
    rows[0]["seconds"] = seconds
    for name in ("seasonal naive", "AutoETS", "AutoARIMA"):
        report(name)
        rows += _rival(name, values, period, places, seconds, float(limit))
    return {"rows": [{"series": part, **row} for row in rows], "horizon": HORIZON, "points": len(values)}


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """What a person reads of the results."""
    rows = [row for part, found in results.items() if part != "m4" for row in found["rows"]]
    columns = ("series", "method", "refits", "mae", "crps", "mae_12", "coverage", "seconds")
    made: list[tuple[str, list[dict[str, Any]], tuple[str, ...]]] = []
    if rows:
        made.append((f"{HORIZON} steps ahead, means over origins and steps", rows, columns))
    if "m4" in results:
        title = f"M4 hourly, {results['m4']['series']} series, 48 steps ahead; rank among the published models"
        made.append((title, results["m4"]["rows"], ("method", "mase", "wql", "rank_mase", "rank_wql", "coverage")))
    return made


def _m4(report: Callable[[str], None], every: int) -> dict[str, Any]:
    """natkal beside the simple models on the same series, and some of the published ones (on all series)."""
    asked = forecast_tasks.windows()[::every]
    started = time.perf_counter()
    told, coverage = forecast_tasks.learned(asked, report)
    seconds = time.perf_counter() - started
    table = forecast_tasks.published()
    rows = [("natkal", forecast_tasks.scores(asked, told), f"{coverage:.3f}")]
    for name, forecast in forecast_tasks.SIMPLE.items():
        found = forecast_tasks.scores(asked, [forecast(one.before, len(one.came)) for one in asked])
        rows.append((name, found, ""))
    rows += [(f"{name}, published", found, "") for name, found in table.items() if name in PUBLISHED]
    return {
        "rows": [
            {
                "method": name,
                "mase": mase,
                "wql": wql,
                "rank_mase": 1 + sum(other < mase for other, _ in table.values()),
                "rank_wql": 1 + sum(other < wql for _, other in table.values()),
                "coverage": covered,
            }
            for name, (mase, wql), covered in rows
        ],
        "series": len(asked),
        "seconds": seconds,
    }


def _ours(values: np.ndarray, places: np.ndarray, model: str) -> np.ndarray:
    """Quantiles (origins, horizon, q)."""
    from natkal.settings.options import make_options
    from natkal.tables.table import TableLearner, TargetShape

    learner = TableLearner(make_options(model=model), [], [TargetShape("regression")], limits=False)
    found, done, kept = [], 0, Kept()
    for place in places:
        learner.learn(learner.rows(np.zeros((place - done, 0)), values[done:place, None])).wait()
        done = place
        found.append(np.quantile(table_paths(learner, HORIZON, often=True, kept=kept), QUANTILES, axis=0).T)
    return np.stack(found)


def _rival(
    name: str, values: np.ndarray, period: int, places: np.ndarray, seconds: float, limit: float
) -> list[dict[str, Any]]:
    from statsforecast.models import (  # pyright: ignore[reportMissingImports]
        AutoARIMA,
        AutoETS,
        SeasonalNaive,
    )

    make = {"seasonal naive": SeasonalNaive, "AutoETS": AutoETS, "AutoARIMA": AutoARIMA}[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = time.perf_counter()
        make(season_length=period).fit(values[: places[-1]])
        one = max(time.perf_counter() - started, 1e-4)
        if one > limit:
            nothing = dict.fromkeys(("mae", "crps", "mae_12", "coverage_mean"), float("nan"))
            return [{"method": name, "refits": "over the limit", **nothing, "coverage": "", "seconds": one}]
        rows, counts = [], []
        for budget in (1, 100):
            fits = int(np.clip(budget * seconds / one, 1, len(places)))
            fits = min(fits, max(1, int(3 * limit / one)))
            if fits in counts:
                continue
            counts.append(fits)
            started = time.perf_counter()
            quantiles = _refitted(make(season_length=period), name, values, places, fits)
            row = _row(name, f"{fits}", quantiles, values, places)
            rows.append({**row, "seconds": time.perf_counter() - started})
    return rows


def _refitted(model: Any, name: str, values: np.ndarray, places: np.ndarray, fits: int) -> np.ndarray:
    """Quantiles at every origin, with so many fits spread evenly over the origins."""
    levels = list(range(10, 100, 10))
    again = set(np.linspace(0, len(places), fits, endpoint=False).astype(int).tolist())
    found, fitted = [], None
    for at, place in enumerate(places):
        if at in again or fitted is None or name == "seasonal naive":
            fitted = model.fit(values[:place])
            told = fitted.predict(HORIZON, level=levels)
        else:
            told = fitted.forward(values[:place], HORIZON, level=levels)
        low = [told[f"lo-{level}"] for level in reversed(levels)]
        high = [told[f"hi-{level}"] for level in levels]
        found.append(np.stack([*low, told["mean"], *high], axis=1))
    return np.stack(found)


def _row(method: str, refits: str, quantiles: np.ndarray, values: np.ndarray, places: np.ndarray) -> dict[str, Any]:
    came = np.stack([values[place : place + HORIZON] for place in places])
    errors = np.abs(came - quantiles[:, :, MIDDLE])
    scores = [crps(own, y) for row, ys in zip(quantiles, came, strict=True) for own, y in zip(row, ys, strict=True)]
    held = ((quantiles[:, :, 0] <= came) & (came <= quantiles[:, :, -1])).mean(axis=0)
    return {
        "method": method,
        "refits": refits,
        "mae": float(errors.mean()),
        "crps": float(np.mean(scores)),
        "mae_12": float(errors[:, -1].mean()),
        "coverage": f"{held.min():.2f} to {held.max():.2f}",
        "coverage_mean": float(held.mean()),
    }
