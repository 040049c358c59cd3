"""A contextual bandit with scikit-learn's manners: `partial_fit(X, arm, reward)`, `predict`, `decide`."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from natkal.decisions.bandit_learner import BanditLearner, Told
from natkal.decisions.bandit_options import BanditOptions
from natkal.errors import StreamError


class KalmanBandit(BaseEstimator):
    """Chooses one of several arms for each row of X, and learns from the rewards of the arms that were taken.

    `arms` are all the arms there are; without it they are those of the first `partial_fit`. `reward` is "binary",
    "number" or "count"; "auto" is binary where the first rewards are 0 and 1. `policy` is "thompson", "ucb",
    "epsilon-greedy" or "greedy", and `policy_value` the width of ucb, the share of epsilon-greedy or the floor
    of thompson.

    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0]] * 40)
    >>> arm = np.array(["a", "a", "b", "b"] * 20)
    >>> bandit = KalmanBandit(model="linear").partial_fit(X, arm, (X[:, 0] == (arm == "b")).astype(float))
    >>> bandit.predict([[0.0], [1.0]]).tolist()
    ['a', 'b']
    """

    def __init__(
        self,
        *,
        arms: Any = None,
        reward: str = "auto",
        policy: str = "thompson",
        policy_value: float | None = None,
        model: str = "auto",
        random_state: int = 0,
    ):
        self.arms = arms
        self.reward = reward
        self.policy = policy
        self.policy_value = policy_value
        self.model = model
        self.random_state = random_state

    def fit(self, X: Any, arm: Any, reward: Any) -> Self:
        """Start again, and learn from these rows in their order."""
        for name in ("bandit_", "arms_"):
            if hasattr(self, name):
                delattr(self, name)
        return self.partial_fit(X, arm, reward)

    def partial_fit(self, X: Any, arm: Any, reward: Any) -> Self:
        """Learn what the arms that were taken in these rows have paid; a NaN reward is missing."""
        first = not hasattr(self, "bandit_")
        rows = self._checked(X, first)
        taken, paid = np.asarray(arm), np.asarray(reward, float)
        if taken.shape != (len(rows),) or paid.shape != (len(rows),):
            raise ValueError(f"arm and reward: must have one entry for each of {len(rows)} rows")
        if first:
            self._start(rows, taken, paid)
        unknown = sorted(set(taken.tolist()) - set(self.arms_.tolist()))
        if unknown:
            raise ValueError(f"arm: {unknown[0]!r} is none of the arms {self.arms_.tolist()}")
        known = paid[~np.isnan(paid)]
        if self.bandit_.options.reward == "binary" and not np.isin(known, (0.0, 1.0)).all():
            raise ValueError('reward: must be 0 or 1 for reward="binary"; reward="number" takes any number')
        numbers = {value: number for number, value in enumerate(self.arms_.tolist())}
        self.bandit_.learn(rows, np.array([numbers[value] for value in taken.tolist()], np.int32), paid)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The arm with the largest expected reward, for each row; explores nothing."""
        return self.arms_[np.argmax(self.expected_rewards(X), axis=1)]

    def expected_rewards(self, X: Any) -> np.ndarray:
        """The expected reward of every arm, (rows, arms), in the order of `arms_`."""
        return self.bandit_.expected(self._rows(X))

    def decide(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """An arm for each row by the policy, and the probability with which it was chosen."""
        told: Told = self.bandit_.decide(self._rows(X))
        return self.arms_[told.arms], told.probabilities

    def _rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "bandit_")
        return self._checked(X, False)

    def _checked(self, X: Any, first: bool) -> np.ndarray:
        found: Any = validate_data(self, X, reset=first, dtype=np.float64, ensure_all_finite="allow-nan")
        return found

    def _start(self, rows: np.ndarray, taken: np.ndarray, paid: np.ndarray) -> None:
        known = paid[~np.isnan(paid)]
        kind = self.reward
        if kind == "auto":
            kind = "binary" if known.size and np.isin(known, (0.0, 1.0)).all() else "number"
        self.arms_ = np.unique(taken) if self.arms is None else np.asarray(self.arms)
        options = BanditOptions(kind, self.policy, self.policy_value, self.model, int(self.random_state))
        try:
            self.bandit_ = BanditLearner(options, [True] * rows.shape[1], [str(arm) for arm in self.arms_.tolist()])
        except StreamError as error:
            raise ValueError(str(error)) from error
