"""The candidates by name: what each forecasts from every origin of several series.

    copies      the last value, the values one period ago as they were          (here)
    lagged      autoregressions and naive forecasts on earlier values           (`lagged.py`)
    smoothed    seasonal ARIMA around an exponentially smoothed season          (`smoothed_season.py`)
    structural  a level, a slope, seasons and a process, by their likelihood    (`structural.py`)

With several periods there are copies and smoothed seasons of each; earlier values are those of the first period, and a
structural law has a block for each. All stand once for the values and, where all are positive, once for the logarithms.
"""

from typing import Any, NamedTuple

import numpy as np

from natkal.forecasting import lagged, structural_laws
from natkal.forecasting.lagged import LaggedForecasts
from natkal.forecasting.smoothed_season import ARMA_COUNT, KEPT, SmoothedSeason, error_growth, roll_arma
from natkal.forecasting.structural import StructuralForecasts


def names(periods: tuple[int, ...], logarithms: bool = False) -> list[str]:
    """The candidates on series with these periods, in order."""
    found = ["last value", *(f"value {period} rows ago" for period in periods)]
    scale = [one.name for one in lagged.CANDIDATES]
    for own in smoothed_periods(periods):
        around = f"a season of {' and '.join(map(str, own))} rows" if own else "no season"
        scale += [f"{kind} around {around}, {kept:g} kept" for kind in ("levels", "changes") for kept in KEPT]
    scale += [f"structural, {kind}" for kind in structural_laws.KINDS]
    return [*found, *scale, *(f"{name}, of logarithms" for name in (scale if logarithms else ()))]


class Made(NamedTuple):
    """Forecasts (values, series, candidates, steps), limits (values, 2, series), and the growth of the errors.

    `growth` (values, series, smoothed ones, steps) is how the errors of the smoothed candidates should grow.
    """

    forecasts: np.ndarray
    limits: np.ndarray
    growth: np.ndarray


class Candidates:
    """The candidates but for the copies on one scale of the values: as they are, or their logarithms."""

    def __init__(self, series: int, periods: tuple[int, ...], horizon: int):
        self.horizon = horizon
        self.lagged = LaggedForecasts(series, periods[0] if periods else 0, horizon)
        self.smoothed = [SmoothedSeason(series, own, horizon) for own in smoothed_periods(periods)]
        self.structural = StructuralForecasts(series, periods, horizon)

    def extend(self, values: np.ndarray, unused: int) -> Made | None:
        """What they forecast after each of more values (values, series) but the first, unused ones; None if all are."""
        origins, limits, starts, structural = [], [], [[] for _ in self.smoothed], []
        for value in values:
            origins.append(self.lagged.learn(value))
            limits.append(self.lagged.limits)
            structural.append(self.structural.learn(value))
            for one, own in zip(self.smoothed, starts, strict=True):
                own.append(one.learn(value))
        if unused >= len(values):
            return None
        bounds = np.stack(limits[unused:])
        flat = bounds.transpose(1, 0, 2).reshape(2, -1)
        shape = (len(bounds), values.shape[1])
        made = [lagged.roll(_flat(origins[unused:]), flat, self.lagged.season, self.horizon)]
        growths = []
        for one, own in zip(self.smoothed, starts, strict=True):
            start = _flat(own[unused:])
            made.append(roll_arma(start, flat, one.periods, self.horizon))
            growths.append(error_growth(start, one.periods, self.horizon))
        low, high = flat[:, :, None, None]
        made.append(np.clip(np.concatenate(structural[unused:]), low, high))
        forecasts, growth = np.concatenate(made, axis=1), np.concatenate(growths, axis=1)
        return Made(forecasts.reshape(*shape, *forecasts.shape[1:]), bounds, growth.reshape(*shape, *growth.shape[1:]))


class Copies:
    """The last value, and those one period ago as they were, of several series."""

    def __init__(self, series: int, periods: tuple[int, ...], horizon: int):
        self.periods, self.horizon = (1, *periods), horizon
        self.recent = np.full((series, max(self.periods)), np.nan)

    def extend(self, values: np.ndarray) -> np.ndarray:
        """What they forecast after each of more values: (values, series, copies, steps). The first ones stand still."""
        made = []
        for value in values:
            self.recent = np.concatenate([self.recent[:, 1:], value[:, None]], axis=1)
            parts = [self.recent[:, np.arange(self.horizon) % period - period] for period in self.periods]
            made.append(np.stack([np.where(np.isnan(part), value[:, None], part) for part in parts], axis=1))
        return np.stack(made)


def smoothed_periods(periods: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The periods of each set of smoothed candidates: each by itself, and all together."""
    return [*((period,) for period in periods), *((periods,) if len(periods) != 1 else ())]


def smoothed_places(periods: tuple[int, ...], logarithms: bool) -> np.ndarray:
    """True for the candidates whose errors have a law of growth, in the order of `names`."""
    own = [*(0 for _ in lagged.CANDIDATES), *(1 for _ in range(ARMA_COUNT * len(smoothed_periods(periods))))]
    own += [0 for _ in structural_laws.KINDS]
    return np.array([*(0 for _ in (0, *periods)), *own, *(own if logarithms else ())], bool)


def _flat(origins: list[Any]) -> Any:
    """Origins of several values as one, whose first axis is (values x series)."""
    return type(origins[0])(*(np.concatenate(parts) for parts in zip(*origins, strict=True)))
