"""What the scikit-learn estimators share: validation, scales, and the machine."""

import numbers
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from natkal.integrations.laws import Law
from natkal.integrations.learners import make_plan
from natkal.integrations.machine import Machine, Moments, make_machine


class KalmanEstimator(BaseEstimator):
    """Stores whatever it is told, as scikit-learn asks; `fit` and `partial_fit` check it and do the rest."""

    n_features_in_: int

    def __init__(
        self,
        hidden_layer_sizes: Any = (),
        *,
        learner: Any = "single",
        prior_scale: Any = 1.0,
        fading: Any = 3e-4,
        standardize: Any = True,
        random_state: Any = None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.learner = learner
        self.prior_scale = prior_scale
        self.fading = fading
        self.standardize = standardize
        self.random_state = random_state

    def _begin(self, law: Law) -> None:
        """A fresh learner for the features that were just validated."""
        self._check_parameters()
        hidden = tuple(np.atleast_1d(np.asarray(self.hidden_layer_sizes, int)).tolist())
        self._plan = make_plan(law, self.n_features_in_, hidden, bool(self.standardize), self.learner)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.state_ = self._machine().start(
            features=self.n_features_in_,
            outputs=law.family.raw_dim,
            fan_in=self.n_features_in_,
            prior_scale=float(self.prior_scale),
            fading=float(self.fading),
            seed=seed,
        )
        self.n_samples_seen_ = 0

    def _learn(self, X: np.ndarray, y: np.ndarray, sample_weight: Any, *, whole: bool) -> Any:
        """Learn these rows in order; `whole`: they are all there is, so that they all make the scales first."""
        weight: Any = 1.0
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        machine = self._machine()
        if whole:
            weight = np.broadcast_to(weight, len(X))
            self.state_ = machine.with_scales(
                self.state_, _moments(X, weight, machine.plan.columns), _moments(y[:, None], weight, 1)
            )
        self.state_ = machine.learn(self.state_, _rows(machine, X, y, weight), len(X), fixed_scales=whole)
        self.n_samples_seen_ += len(X)
        return self

    def _summary(self, X: Any) -> np.ndarray:
        """What the law says of each row."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        machine = self._machine()
        return machine.predict(self.state_, _rows(machine, X, 0.0, 1.0), len(X))

    def _seen_to_be_good(self, X: Any, y: Any) -> bool:
        """Whether a glance is enough: plain arrays like those before, nothing to convert, to rename or to refuse."""
        return (
            type(X) is type(y) is np.ndarray
            and X.dtype == np.float64
            and X.ndim == 2
            and y.shape == X.shape[:1]
            and X.size > 0
            and X.shape[1] == getattr(self, "n_features_in_", X.shape[1])
            and not hasattr(self, "feature_names_in_")
            and (y.dtype.kind in "biu" or (y.dtype == np.float64 and bool(np.isfinite(y).all())))
            and bool(np.isfinite(X).all())
        )

    def _machine(self) -> Machine:
        return make_machine(self._plan)

    def _check_parameters(self) -> None:
        sizes = np.atleast_1d(np.asarray(self.hidden_layer_sizes))
        if sizes.size and not (np.issubdtype(sizes.dtype, np.integer) and sizes.ndim == 1 and (sizes > 0).all()):
            raise ValueError(
                f"hidden_layer_sizes: must be a tuple of positive whole numbers, got {self.hidden_layer_sizes!r}"
            )
        if not (isinstance(self.prior_scale, numbers.Real) and 0 < float(self.prior_scale) < np.inf):
            raise ValueError(f"prior_scale: must be positive and finite, got {self.prior_scale!r}")
        if not (isinstance(self.fading, numbers.Real) and 0 <= float(self.fading) < 1):
            raise ValueError(f"fading: must lie in [0, 1), got {self.fading!r}")


def _rows(machine: Machine, X: np.ndarray, y: Any, weight: Any) -> np.ndarray:
    """The machine's rows."""
    count, columns = len(X), machine.plan.columns
    rows = machine.blank(count)
    rows[:count, : X.shape[1]] = X
    rows[:count, columns] = y
    rows[:count, columns + 1] = weight
    rows[:count, columns + 2] = machine.plan.law.summary_size
    return rows


def _moments(values: np.ndarray, weight: np.ndarray, columns: int) -> Moments:
    """Count, mean and squared deviations of each column over the rows that count; unfilled columns at zero."""
    counted = values[weight > 0]
    rest = columns - values.shape[1]
    mean = counted.mean(axis=0) if len(counted) else np.zeros(values.shape[1])
    squares = np.square(counted - mean).sum(axis=0)
    # Rounding of a constant column is no spread.
    noise = len(counted) * np.square(np.spacing(np.abs(mean)) * 8)
    return (
        np.pad(np.full(values.shape[1], float(len(counted))), (0, rest)),
        np.pad(mean, (0, rest)),
        np.pad(np.where(squares > noise, squares, 0.0), (0, rest)),
    )
