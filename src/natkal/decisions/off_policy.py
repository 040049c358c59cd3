"""What another policy would have earned, from a log of decisions with their probabilities.

For a row with context x, arm a that the log chose with probability p, reward r, a policy that chooses it with
probability q, and a model m of rewards, w = q / p:

    inverse propensity   mean of w r                                          unbiased
    self-normalised      sum of w r / sum of w                                biased by 1/n, of smaller variance
    doubly robust        mean of  sum_b q(b) m(x, b) + w (r - m(x, a))        unbiased, precise where m is good

(Dudik, Langford and Li). q and m may depend on earlier rows: each term then has the right mean given the past, and the
standard error is that of a martingale.

Intervals are Student's. A few rows with large weights may make up most of the variance, which is then itself poorly
known: with deviations d of the terms from their mean, (sum d^2)^2 / sum d^4 - 1 degrees of freedom. That is half of
what Satterthwaite's rule gives, as the terms are skewed too.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LARGEST_FREEDOM = 1e6
"""Beyond so many degrees of freedom Student's law is normal."""


class Estimate(NamedTuple):
    """A mean reward per decision, its standard error, and the degrees of freedom of that error."""

    value: float
    error: float
    freedom: float = math.inf

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The interval that holds the value with probability `level`, nearly so for few rows."""
        if not 0 < level < 1:
            raise ValueError(f"level: must lie strictly between 0 and 1, got {level}")
        from scipy.special import stdtrit  # takes as long to import as all of natkal

        reach = float(stdtrit(min(self.freedom, LARGEST_FREEDOM), (1 + level) / 2)) * self.error
        return self.value - reach, self.value + reach


class OffPolicy(NamedTuple):
    """Three estimates of what the policy would have earned, what the log earned, and the effective number of rows.

    `doubly_robust` is None without a model. `effective` is (sum w)^2 / sum w^2: how many rows of the policy's own the
    log is worth.
    """

    inverse_propensity: Estimate
    self_normalised: Estimate
    doubly_robust: Estimate | None
    logged: Estimate
    effective: float


@dataclasses.dataclass
class OffPolicySums:
    """The sums that the estimates are made of, so that a log may come in parts; w = q / p, d the doubly robust term."""

    rows: int = 0
    reward: float = 0.0
    reward_squares: float = 0.0
    weight: float = 0.0
    weight_squares: float = 0.0
    paid: float = 0.0
    """Sum of w r."""
    paid_squares: float = 0.0
    """Sum of w^2 r^2."""
    paid_weight: float = 0.0
    """Sum of w^2 r."""
    robust: float = 0.0
    robust_squares: float = 0.0
    reward_cubes: float = 0.0
    reward_fourths: float = 0.0
    weight_cubes: float = 0.0
    weight_fourths: float = 0.0
    paid_cubes: float = 0.0
    paid_fourths: float = 0.0
    robust_cubes: float = 0.0
    robust_fourths: float = 0.0
    paid_weight_fourths: tuple[float, ...] = (0.0, 0.0, 0.0)
    """Sums of w^4 r, w^4 r^2 and w^4 r^3."""

    def add(self, reward: np.ndarray, weight: np.ndarray, robust: np.ndarray) -> None:
        """Some more rows, none of them missing."""
        self.rows += len(reward)
        for name, terms in (("reward", reward), ("weight", weight), ("paid", weight * reward), ("robust", robust)):
            setattr(self, name, getattr(self, name) + float(terms.sum()))
            for power, word in ((2, "squares"), (3, "cubes"), (4, "fourths")):
                setattr(self, f"{name}_{word}", getattr(self, f"{name}_{word}") + float((terms**power).sum()))
        self.paid_weight += float((np.square(weight) * reward).sum())
        more = [float((weight**4 * reward**power).sum()) for power in (1, 2, 3)]
        self.paid_weight_fourths = tuple(a + b for a, b in zip(self.paid_weight_fourths, more, strict=True))

    def estimates(self, *, modelled: bool = True) -> OffPolicy:
        """The estimates so far; `modelled`: the doubly robust terms mean something."""
        known = self.weight > 0
        ratio = self.paid / self.weight if known else math.nan
        # the delta method, for the ratio of two means: sum of w^2 (r - ratio)^2 over (sum of w)^2
        squares = self.paid_squares - 2 * ratio * self.paid_weight + ratio**2 * self.weight_squares
        error = math.sqrt(max(squares, 0.0)) / self.weight if known else math.nan
        # sum of w^4 (r - ratio)^4, by the binomial theorem
        powers = (self.weight_fourths, *self.paid_weight_fourths, self.paid_fourths)
        fourths = sum(math.comb(4, power) * (-ratio) ** (4 - power) * own for power, own in enumerate(powers))
        return OffPolicy(
            inverse_propensity=self._mean("paid"),
            self_normalised=Estimate(ratio, error, _freedom(squares, fourths, self.rows)),
            doubly_robust=self._mean("robust") if modelled else None,
            logged=self._mean("reward"),
            effective=self.weight**2 / self.weight_squares if known else 0.0,
        )

    def _mean(self, name: str) -> Estimate:
        """The mean of the terms of this name; central moments from the sums of their powers."""
        if self.rows < 2:
            return Estimate(getattr(self, name) / self.rows if self.rows else math.nan, math.nan)
        total, squares, cubes, fourths = (
            getattr(self, f"{name}{end}") for end in ("", "_squares", "_cubes", "_fourths")
        )
        mean = total / self.rows
        second = max(squares - self.rows * mean**2, 0.0)
        fourth = fourths - 4 * mean * cubes + 6 * mean**2 * squares - 3 * self.rows * mean**4
        error = math.sqrt(second / (self.rows - 1) / self.rows)
        return Estimate(mean, error, _freedom(second, fourth, self.rows))


def _freedom(squares: float, fourths: float, rows: int) -> float:
    """(sum d^2)^2 / sum d^4 - 1, from 1 to n - 1, for deviations d."""
    effective = squares**2 / fourths if fourths > 0 and squares > 0 else math.inf
    return float(np.clip(effective - 1, 1.0, max(rows - 1, 1)))


def off_policy(
    rewards: ArrayLike,
    logged: ArrayLike,
    chosen: ArrayLike,
    *,
    expected: ArrayLike | None = None,
    expected_of_policy: ArrayLike | None = None,
) -> OffPolicy:
    """The estimates from n rows; those whose reward is missing (NaN) are left out.

    `logged` and `chosen` are the probabilities of the logged arm under the log's policy and under the one in question.
    `expected` is the model's reward of the logged arm, `expected_of_policy` its mean over the policy's arms.
    """
    reward, behind, ahead = (np.asarray(part, float) for part in (rewards, logged, chosen))
    known = ~np.isnan(reward)
    if not known.any():
        raise ValueError("rewards: none is known")
    if not np.all(behind[known] > 0):
        row = int(np.flatnonzero(known & ~(behind > 0))[0])
        raise ValueError(f"probabilities: that of row {row} is {behind[row]}; the log cannot have chosen that arm")
    reward, weight = reward[known], (ahead / np.where(behind > 0, behind, 1.0))[known]
    modelled = expected is not None and expected_of_policy is not None
    own = np.asarray(expected, float)[known] if modelled else np.zeros(len(reward))
    policy = np.asarray(expected_of_policy, float)[known] if modelled else np.zeros(len(reward))
    sums = OffPolicySums()
    sums.add(reward, weight, policy + weight * (reward - own))
    return sums.estimates(modelled=modelled)
