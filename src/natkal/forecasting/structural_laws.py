"""Structural laws of a series: a level, a slope, a season and a process around them, many at once.

With unit variance of w, the unit of all others (Harvey 1989, sections 2.3 and 4.1):

    y_t = mu_t + S_t + u_t                         mu_t = mu_{t-1} + b_{t-1} + noise(level)
    u_t = phi_1 u_{t-1} + phi_2 u_{t-2} + w_t      b_t = damping b_{t-1} + noise(slope)
    S_t: the first harmonics of each period, each turning by 2 pi j / m a step, + noise(season)

A law has no slope, a fixed one, one that wanders, or one that dies out; u is white, an autoregression, or a slow cycle
(Harvey 1989, section 2.3.3, of about 46 and 80 values). The laws are a Latin square of a grid: each process, level and
slope with one of the seasons. As all noise is given, the gains of their Kalman filters do not depend on the series.
"""

import functools
import threading
from typing import NamedTuple

import numpy as np

from natkal.forecasting.filter import gain_of, move

KINDS = ("level", "line", "wandering slope", "damped slope")
FIRST_VARIANCE, FIRST_SLOPE_VARIANCE = 1e5, 1.0
"""Prior variances: of the level and of the harmonics (next to nothing is known), and of a slope."""
MOST_HARMONICS = 6
PROCESS = 4
"""The first entries of a state: level, slope, u, and the u before."""
SMALLEST_LEVEL = 0.03
"""The noise of a slope is relative to that of the level, which counts as this at least."""
MOST_PERIODS = 8
"""So many sets of periods keep their gains: 17 MB each for a thousand rows."""


def _cycle(modulus: float, period: float) -> tuple[float, float]:
    return 2 * modulus * float(np.cos(2 * np.pi / period)), -(modulus**2)


PROCESSES = ((0.0, 0.0), (0.8, 0.0), (1.2, -0.35), _cycle(0.95, 46), _cycle(0.97, 80))
LEVELS = (0.0, 0.03, 0.3, 3.0, 100.0)
SEASONS = (0.0, 1e-4, 3e-3, 0.05)
"""Variances of the noise of the level, and of the season in units of that of the level or of w, whichever is larger."""
SLOPES = (((0.0, 1.0),), ((0.0, 1.0),), ((1e-3, 1.0), (0.05, 1.0)), ((0.1, 0.9),))
"""The slopes of each kind: the variance of the noise in units of the level's, and the damping."""


class Law(NamedTuple):
    """One of them; `level`, `slope` and `season` are variances."""

    kind: int
    process: tuple[float, float]
    level: float
    slope: float
    damping: float
    season: float


def _laws() -> tuple[Law, ...]:
    made = []
    for kind, slopes in enumerate(SLOPES):
        for a, process in enumerate(PROCESSES):
            for b, level in enumerate(LEVELS):
                for c, (slope, damping) in enumerate(slopes):
                    season = SEASONS[-(a + b + c) % len(SEASONS)] * max(level, 1.0)
                    made.append(Law(kind, process, level, slope * max(level, SMALLEST_LEVEL), damping, season))
    return tuple(made)


LAWS = _laws()
FIRST_OF_KIND = np.flatnonzero(np.diff([-1, *(law.kind for law in LAWS)]))
"""Where each kind begins in the laws."""


def harmonics(period: int) -> list[float]:
    """The angles that they turn by in a step."""
    return [2 * np.pi * j / period for j in range(1, min(period // 2, MOST_HARMONICS) + 1)]


class Laws:
    """All laws with these periods, as linear models of a state x: y = seen x, x <- moved x + N(0, noise)."""

    def __init__(self, periods: tuple[int, ...]):
        angles = [angle for period in periods for angle in harmonics(period)]
        self.size = PROCESS + sum(_width(angle) for angle in angles)
        square = (len(LAWS), self.size, self.size)
        self.moved, self.noise, first = np.zeros(square), np.zeros(square), np.zeros(square)
        self.seen = np.zeros(self.size)
        self.seen[[0, 2]] = 1.0
        for place, law in enumerate(LAWS):
            self.moved[place, :2, :2] = [[1.0, 1.0], [0.0, law.damping]]
            self.moved[place, 2:4, 2:4] = [law.process, (1.0, 0.0)]
            self.noise[place].flat[: 3 * (self.size + 1) : self.size + 1] = law.level, law.slope, 1.0
            first[place, 0, 0] = FIRST_VARIANCE
            first[place, 1, 1] = FIRST_SLOPE_VARIANCE if law.kind else 0.0
            first[place, 2:4, 2:4] = _stationary(self.moved[place, 2:4, 2:4])
        at = PROCESS
        for angle in angles:
            end = at + _width(angle)
            turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
            self.moved[:, at:end, at:end] = turn[: end - at, : end - at]
            self.noise[:, range(at, end), range(at, end)] = np.array([law.season for law in LAWS])[:, None]
            first[:, range(at, end), range(at, end)] = FIRST_VARIANCE
            self.seen[at] = 1.0
            at = end
        self._cov = first
        self._gains: list[tuple[np.ndarray, np.ndarray]] = []
        self._lock = threading.Lock()

    def gain(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """What one unit of error in this row adds to the state (laws, size), and the variance of the error (laws,)."""
        with self._lock:
            while len(self._gains) <= row:
                found = gain_of(self._cov, self.seen, 0.0)
                posterior = self._cov - found.gain[:, :, None] * found.pushed[:, None, :]
                self._cov = move(posterior, self.moved, self.noise)
                self._gains.append((found.gain, found.variance))
        return self._gains[row]

    def ahead(self, horizon: int) -> np.ndarray:
        """What the values 1 .. horizon steps ahead are of the state, (laws, horizon, size)."""
        rows = [np.broadcast_to(self.seen, (len(LAWS), self.size))]
        for _ in range(horizon):
            rows.append((rows[-1][:, None, :] @ self.moved)[:, 0])
        return np.stack(rows[1:], axis=1)


@functools.lru_cache(maxsize=MOST_PERIODS)
def laws_of(periods: tuple[int, ...]) -> Laws:
    """They are the same for every series with these periods."""
    return Laws(periods)


def _width(angle: float) -> int:
    """Two numbers for a harmonic, of which the second makes it turn; one if it only changes its sign."""
    return 1 if np.isclose(angle, np.pi) else 2


def _stationary(moved: np.ndarray) -> np.ndarray:
    """The covariance V of (u, the u before) that stays: V = moved V moved' + the unit variance of w."""
    size = len(moved)
    unit = np.zeros((size, size))
    unit[0, 0] = 1.0
    return np.linalg.solve(np.eye(size * size) - np.kron(moved, moved), unit.ravel()).reshape(size, size)
