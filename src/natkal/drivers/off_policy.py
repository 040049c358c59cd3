"""What another policy would have earned, from a log of decisions with their probabilities.

For a row with context x, arm a that the log chose with probability p, reward r, a policy that chooses it with
probability q, and a model m of rewards, w = q / p:

    inverse propensity   mean of w r                                          unbiased
    self-normalised      sum of w r / sum of w                                biased by 1/n, of smaller variance
    doubly robust        mean of  sum_b q(b) m(x, b) + w (r - m(x, a))        unbiased, of small variance where m is good

(Dudik, Langford and Li). q and m may depend on earlier rows: each term then has the right mean given the past, and the
standard error is that of a martingale. Intervals are normal ones.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike


class Estimate(NamedTuple):
    """A mean reward per decision and its standard error."""

    value: float
    error: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The interval that holds the value with probability `level`, for many rows."""
        from statistics import NormalDist

        if not 0 < level < 1:
            raise ValueError(f"level: must lie strictly between 0 and 1, got {level}")
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.error
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
    total = weight.sum()
    normalised = float((weight * reward).sum() / total) if total > 0 else float("nan")
    # the delta method: the ratio of two means
    deviations = weight * (reward - normalised)
    ratio_error = float(np.sqrt(np.square(deviations).sum()) / total) if total > 0 else float("nan")
    robust = None
    if expected is not None and expected_of_policy is not None:
        own, policy = np.asarray(expected, float)[known], np.asarray(expected_of_policy, float)[known]
        robust = _mean(policy + weight * (reward - own))
    return OffPolicy(
        inverse_propensity=_mean(weight * reward),
        self_normalised=Estimate(normalised, ratio_error),
        doubly_robust=robust,
        logged=_mean(reward),
        effective=float(total**2 / np.square(weight).sum()) if total > 0 else 0.0,
    )


def _mean(terms: np.ndarray) -> Estimate:
    error = terms.std(ddof=1) / np.sqrt(len(terms)) if len(terms) > 1 else float("nan")
    return Estimate(float(terms.mean()), float(error))
