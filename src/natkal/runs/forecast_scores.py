"""Forecasts of the next rows, kept until they come, and how they fared at each step ahead.

The next rows are forecast from every one of the first `EVERY_ROW` rows (of each key), and from half as many of the
others each time their number doubles: a forecast takes as long as many rows, and a mean over some hundreds of forecasts
hardly changes with more of them.
"""

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from natkal.errors import StreamError
from natkal.forecasting.combination import Kept
from natkal.forecasting.paths import QUANTILES, crps
from natkal.runs.answers import quoted
from natkal.runs.forecasting import quick_paths
from natkal.storage.parts import F8, Stored, by_name, text, whole

if TYPE_CHECKING:
    from natkal.runs.session import Session

ROUNDS = 8
"""A scored forecast has 8 rounds of paths, a quarter of those of `natkal forecast`."""
MIDDLE = QUANTILES.index(0.5)
FIRST_FORECAST = 24
"""The first rows of a key are not forecast from: there is next to nothing to do it with."""
EVERY_ROW = 256
SCORES = ("rows", "absolute_error", "crps", "covered_90", "last_absolute_error", "seasonal_absolute_error")


class Made(NamedTuple):
    """A forecast that waits for its rows: the rows its key had, quantiles (horizon, q), and two naive forecasts."""

    after: int
    quantiles: np.ndarray
    last: float
    seasonal: np.ndarray


class ForecastScores:
    """The forecasts under way, key by key, and sums for each step ahead, (horizon, scores)."""

    def __init__(self, horizon: int):
        self.horizon = horizon
        self.totals = np.zeros((horizon, len(SCORES)))
        self.rows: dict[str, int] = {}
        self.made: dict[str, deque[Made]] = {}
        self.kept: dict[str, Kept] = {}
        """The combinations as far as they came; a run that goes on makes them again, with the same result."""

    def came(self, key: str, y: float) -> np.ndarray | None:
        """One more target of a key: all forecasts of it are scored. The quantiles of the oldest, made H rows before."""
        now = self.rows[key] = self.rows.get(key, 0) + 1
        waiting = self.made.setdefault(key, deque(maxlen=self.horizon))
        oldest = None
        for made in waiting:
            step = now - made.after
            if not 1 <= step <= self.horizon:
                continue
            own = made.quantiles[step - 1]
            self.totals[step - 1] += (
                1.0,
                abs(y - own[MIDDLE]),
                crps(own, y),
                float(own[0] <= y <= own[-1]),
                abs(y - made.last),
                abs(y - made.seasonal[step - 1]),
            )
            oldest = own if step == self.horizon else oldest
        return oldest

    def is_due(self, key: str) -> bool:
        """Whether the next rows are forecast now: after every row up to EVERY_ROW, every second to twice that, .."""
        rows = self.rows.get(key, 0)
        return rows >= FIRST_FORECAST and rows % (1 << max((rows - 1) // EVERY_ROW, 0).bit_length()) == 0

    def make(self, session: "Session", key: str) -> None:
        """The forecast after the last row of a key."""
        past = session.learner.pasts[0]
        drawn = quick_paths(session, self.horizon, key, ROUNDS, self.kept.setdefault(key, Kept()))
        known = np.array(past.known[key])
        season = past.season or 1
        places = len(known) + np.arange(self.horizon)
        places -= season * ((places - len(known)) // season + 1)
        seasonal = known[np.maximum(places, 0)]
        made = Made(self.rows[key], np.quantile(drawn, QUANTILES, axis=0).T, float(known[-1]), seasonal)
        self.made.setdefault(key, deque(maxlen=self.horizon)).append(made)

    def summary(self) -> dict[str, Any]:
        """Means at each step ahead."""
        steps = []
        for step, sums in enumerate(self.totals, 1):
            rows = sums[0]
            mean = (sums[1:] / rows).tolist() if rows else [None] * (len(SCORES) - 1)
            names = ("mean_absolute_error", "crps", "coverage_90")
            names += ("last_mean_absolute_error", "seasonal_mean_absolute_error")
            steps.append({"step": step, "rows": int(rows), **dict(zip(names, mean, strict=True))})
        return {"horizon": self.horizon, "after_rows": FIRST_FORECAST, "steps": steps}

    # -- on disk -------------------------------------------------------------------------------------------------------

    def stored(self) -> Stored:
        """The rows of each key and the sums; for each forecast under way its key, when it was made, and its numbers."""
        under_way = [(key, made) for key, queue in self.made.items() for made in queue]
        fields = {"rows": self.rows, "waiting": [[key, made.after] for key, made in under_way]}
        rows = [np.concatenate([made.quantiles.ravel(), [made.last], made.seasonal]) for _, made in under_way]
        waiting = np.stack(rows) if rows else np.zeros((0, self.width))
        return Stored(fields, {".totals": self.totals, ".waiting": waiting})

    @property
    def width(self) -> int:
        """Numbers of one forecast under way."""
        return self.horizon * len(QUANTILES) + 1 + self.horizon

    def restore(self, kept: Stored) -> None:
        """The inverse of `stored`."""
        under_way = [(text(key), whole(after)) for key, after in kept.fields["waiting"]]
        kept.check({".totals": ((self.horizon, len(SCORES)), F8), ".waiting": ((len(under_way), self.width), F8)})
        self.totals = kept.arrays[".totals"].copy()
        self.rows = by_name(whole)(kept.fields["rows"])
        cut = self.horizon * len(QUANTILES)
        for (key, after), row in zip(under_way, kept.arrays[".waiting"], strict=True):
            made = Made(after, row[:cut].reshape(self.horizon, -1).copy(), float(row[cut]), row[cut + 1 :].copy())
            self.made.setdefault(key, deque(maxlen=self.horizon)).append(made)


FILE_HEADER = "line,key,observed,predicted,low_90,high_90\n"


def line_of(line: int, key: str, y: float, quantiles: np.ndarray) -> str:
    """One line of the file of forecasts: a row, and what was expected of it `horizon` rows before."""
    numbers = (y, quantiles[MIDDLE], quantiles[0], quantiles[-1])
    return f"{line},{quoted(key)}," + ",".join(repr(float(number)) for number in numbers) + "\n"


def check_scorable(session: "Session") -> None:
    """Refuse what cannot be scored several rows ahead, with the option to change."""
    settings, targets = session.settings, session.schema.targets
    first, *others = targets
    if others:
        raise StreamError("--horizon: scores one target; name one --target")
    if first.classes:
        raise StreamError(f"--horizon: scores numbers, and {first.name!r} has classes; natkal forecast tells them")
    if settings.id is not None or settings.label_delay:
        option = "--id" if settings.id is not None else "--label-delay"
        raise StreamError(f"--horizon: needs each row's target before the next row; leave {option} out")
    if not session.learner.pasts[0].columns and not settings.options.has_memory:
        raise StreamError("--horizon: a forecast needs past targets as inputs; use --past auto, or lags such as 1,2,12")
