"""Structural forecasts of a series: the laws of `structural_laws`, weighed by how likely they made each next value.

Each law has a Kalman filter; e is its error one step ahead, f the variance of e in units of w, and s^2 the faded mean
of e^2 / f (0.99, n of them). Errors count for 3 s f^(1/2) at most, in the state as well. The likelihood of a law of
unknown scale is Student's, faded:

    l <- 0.995 l - log(s^2 f) / 2 - (n + 1) / 2 log(1 + e^2 / (f n s^2))         weight ~ exp(l / 2) within its kind

The forecast of a kind is the weighted mean of those of its laws, one candidate of the combination for each kind. One
step ahead tells laws apart long before their errors many steps ahead do, which is why these add to candidates whose
weights are learned from the latter.
"""

import numpy as np

from natkal.forecasting.structural_laws import FIRST_OF_KIND, KINDS, LAWS, laws_of

STRUCTURAL_COUNT = len(KINDS)
ERROR_KEPT, LIKELIHOOD_KEPT = 0.99, 0.995
SHARE_OF_LIKELIHOOD = 0.5
LARGEST_ERROR = 3.0
FEW_ERRORS = 6
"""Errors, faded, before the likelihood counts: the mean square of fewer says little."""
ROWS_BEFORE = 2
"""Rows more than the numbers of a state before errors are counted: the first ones say how little was known."""
LEAST_VARIANCE = 1e-300
_LAWS_OF_KIND = np.diff(FIRST_OF_KIND, append=len(LAWS))


class StructuralForecasts:
    """The candidates on several series with these periods, which come value by value."""

    def __init__(self, series: int, periods: tuple[int, ...], horizon: int):
        self.count = 0
        self.laws = laws_of(periods)
        ahead = self.laws.ahead(horizon)
        ends = [*FIRST_OF_KIND[1:], len(LAWS)]
        self.kinds = [slice(first, end) for first, end in zip(FIRST_OF_KIND, ends, strict=True)]
        self.ahead = [ahead[kind].transpose(1, 0, 2).reshape(horizon, -1) for kind in self.kinds]
        """For each kind, what the values to come are of the states of its laws: (horizon, laws x size)."""
        self.state = np.zeros((len(LAWS), self.laws.size, series))
        self.likelihood, self.squares, self.heard = *np.zeros((2, len(LAWS), series)), 0.0

    def learn(self, value: np.ndarray) -> np.ndarray:
        """One more value of each series: forecasts of the next, (series, kinds, steps)."""
        self._step(value)
        parts = self.weights[:, None] * self.state
        made = [
            ahead @ parts[kind].reshape(ahead.shape[1], -1) for ahead, kind in zip(self.ahead, self.kinds, strict=True)
        ]
        return np.stack(made).transpose(2, 0, 1)

    @property
    def weights(self) -> np.ndarray:
        """Those of the laws (laws, series); the sum over a kind is 1."""
        least = np.repeat(np.maximum.reduceat(self.likelihood, FIRST_OF_KIND, axis=0), _LAWS_OF_KIND, axis=0)
        raw = np.exp(SHARE_OF_LIKELIHOOD * (self.likelihood - least))
        return raw / np.repeat(np.add.reduceat(raw, FIRST_OF_KIND, axis=0), _LAWS_OF_KIND, axis=0)

    def _step(self, value: np.ndarray) -> None:
        if not self.count:
            self.state[:, 0] = value
        predicted = self.laws.moved @ self.state if self.count else self.state
        gain, variance = self.laws.gain(self.count)
        error = value - np.einsum("ldn,d->ln", predicted, self.laws.seen)
        if self.count >= self.laws.size + ROWS_BEFORE:
            error = self._weigh(error, variance[:, None])
        self.state = predicted + gain[:, :, None] * error[:, None]
        self.count += 1

    def _weigh(self, error: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """The likelihood of these errors enters the weights; the errors as far as they count."""
        square = error**2 / variance
        if self.heard >= FEW_ERRORS:
            mean = self.squares / self.heard + LEAST_VARIANCE
            square = np.minimum(square, LARGEST_ERROR**2 * mean)
            error = np.sign(error) * np.sqrt(square * variance)
            student = (self.heard + 1) / 2 * np.log1p(square / (self.heard * mean))
            self.likelihood = LIKELIHOOD_KEPT * self.likelihood - np.log(mean * variance) / 2 - student
        self.squares = ERROR_KEPT * self.squares + square
        self.heard = ERROR_KEPT * self.heard + 1
        return error
