"""river estimators on dictionaries: a regressor, and a classifier for any number of classes.

Features and classes may come and go. Rows are learned when somebody asks for a prediction or enough of them have come:
the results are those of learning each at once, and a row costs a tenth.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from river import base, proba

from natkal.integrations.estimator_core import PortableLearner, options_of
from natkal.tabular.table_learner import TargetShape

MAX_WAITING_ROWS = 256


class _Kalman(base.Estimator):
    """The options, the column of each feature, and the rows that wait to be learned."""

    _task = "regression"

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] | None = None,
        learner: str = "auto",
        model: str = "auto",
        prior_scale: float | None = None,
        fading: float | None = None,
        past: str = "auto",
        budget: str = "auto",
        standardize: bool = True,
        seed: int = 0,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.learner = learner
        self.model = model
        self.prior_scale = prior_scale
        self.fading = fading
        self.past = past
        self.budget = budget
        self.standardize = standardize
        self.seed = seed
        self._options = options_of(self, seed or 0)
        self._columns: dict[Any, int] = {}
        self._table: PortableLearner | None = None
        self._waiting: list[tuple[np.ndarray, float, float]] = []

    def _shape(self) -> TargetShape:
        return TargetShape(self._task)

    def _welcome(self, names: Any) -> PortableLearner:
        """Room for these features; those that are new start from the prior."""
        new = [name for name in names if name not in self._columns]
        if self._table is None:
            self._columns = {name: place for place, name in enumerate(new)}
            self._table = PortableLearner(self._options, [True] * len(new), [self._shape()], limits=False)
        elif new:
            self._settle()
            for name in new:
                self._columns[name] = len(self._columns)
            self._table.add_features([True] * len(new))
        return self._table

    def _row(self, x: Mapping[Any, Any]) -> np.ndarray:
        """A dictionary as numbers: absent features, and infinite values, are missing."""
        row = np.full(len(self._columns), np.nan)
        for name, value in x.items():
            place = self._columns.get(name)
            if place is None or value is None:
                continue
            try:
                row[place] = value
            except (TypeError, ValueError) as error:
                raise TypeError(
                    f"feature {name!r} is {value!r}, not a number; encode it first (OneHotEncoder)"
                ) from error
        return np.where(np.isfinite(row), row, np.nan)

    def _learn(self, x: Mapping[Any, Any], target: float, weight: float) -> None:
        if not 0 <= weight < math.inf:
            raise ValueError(f"w: must be finite and at least 0, got {weight}")
        self._welcome(x)
        self._waiting.append((self._row(x), target, weight))
        if len(self._waiting) >= MAX_WAITING_ROWS:
            self._settle()

    def _settle(self) -> None:
        """Learn all rows that wait."""
        if self._waiting:
            assert self._table is not None
            self._table.learn(self._taken())
            self._waiting = []

    def _taken(self) -> Any:
        assert self._table is not None
        numbers = np.stack([row for row, _, _ in self._waiting])
        targets = np.array([[target] for _, target, _ in self._waiting])
        return self._table.rows(numbers, targets, np.array([weight for _, _, weight in self._waiting]))

    def _ask(self, rows: Sequence[Mapping[Any, Any]]) -> Any:
        """The predictions for some rows; None before anything was learned."""
        if self._table is None:
            return None
        numbers = np.stack([self._row(row) for row in rows])
        if len(rows) == 1 and len(self._waiting) <= 1:  # learn, predict, learn, predict: one call for both
            learned = self._taken() if self._waiting else None
            self._waiting = []
            told = self._table.predict_row(learned, self._table.rows(numbers))
            return type(told)(*(np.asarray(field)[None] for field in told))
        self._settle()
        return self._table.predict_rows(self._table.rows(numbers))

    def __getstate__(self) -> dict[str, Any]:
        """Plain numbers: rows that wait are learned first."""
        self._settle()
        return dict(self.__dict__)


class KalmanRegressor(_Kalman, base.MiniBatchRegressor):
    """Regression with its uncertainty, one row at a time, by the learner of `natkal learn`.

    The noise is learned with the mean. Features and target are standardised inside; an absent feature is its mean so
    far. Features may come and go. `learner="single"` is one filter with `prior_scale` and `fading`; `model` and
    `hidden_layer_sizes` name one architecture instead of the mixture of several.

    Examples
    --------
    >>> from natkal.river import KalmanRegressor
    >>> model = KalmanRegressor(learner="single", model="linear", past="none")
    >>> for i in range(100):
    ...     model.learn_one({"a": i % 7, "b": i % 5}, 2.0 * (i % 7) - i % 5)
    >>> round(model.predict_one({"a": 3, "b": 1}))
    5

    """

    def learn_one(self, x: dict, y: Any, w: float = 1.0) -> None:
        """Learn one row, which counts `w` times."""
        try:
            target = float(y)
        except (TypeError, ValueError):
            target = math.nan
        if not target - target == 0:
            raise ValueError(f"y: {y!r} is not a finite number")
        self._learn(x, target, w)

    def learn_many(self, X: pd.DataFrame, y: pd.Series, w: float = 1.0) -> None:
        """The same as `learn_one` on each row, in order."""
        if len(X) != len(y):
            raise ValueError(f"y: {len(y)} targets for {len(X)} rows")
        for row, target in zip(X.to_dict("records"), y.tolist(), strict=True):
            self.learn_one(row, target, w)

    def predict_one(self, x: dict, with_dist: bool = False) -> Any:
        """The expected target, or with `with_dist` a normal law with its mean and variance."""
        told = self._ask([x])
        mean, spread = (0.0, math.inf) if told is None else (float(told.point[0]), float(told.spread[0]))
        return proba.Gaussian._from_state(n=1, m=mean, var=spread**2, ddof=0) if with_dist else mean

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """The expected target of each row."""
        told = self._ask(X.to_dict("records")) if len(X) else None
        return pd.Series(np.zeros(len(X)) if told is None else told.point, index=X.index)


class KalmanClassifier(_Kalman, base.MiniBatchClassifier):
    """Classification, one row at a time, by the learner of `natkal learn`; options as for `KalmanRegressor`.

    Classes need not be known before: a new one starts from the prior and changes nothing that was learned of the
    others.

    Examples
    --------
    >>> from natkal.river import KalmanClassifier
    >>> model = KalmanClassifier(learner="single", model="linear", past="none")
    >>> for i in range(300):
    ...     model.learn_one({"a": i % 7, "b": i % 5}, i % 7 > i % 5)
    >>> model.predict_one({"a": 6, "b": 0}), model.predict_one({"a": 0, "b": 4})
    (True, False)

    """

    _task = "binary"

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] | None = None,
        learner: str = "auto",
        model: str = "auto",
        prior_scale: float | None = None,
        fading: float | None = None,
        past: str = "auto",
        budget: str = "auto",
        standardize: bool = True,
        seed: int = 0,
    ):
        super().__init__(hidden_layer_sizes, learner, model, prior_scale, fading, past, budget, standardize, seed)
        self._classes: dict[Any, int] = {}

    @property
    def _multiclass(self) -> bool:
        return True

    def _shape(self) -> TargetShape:
        return TargetShape(self._task, 2, 2)

    def learn_one(self, x: dict, y: Any, w: float = 1.0) -> None:
        """Learn one row, which counts `w` times."""
        number = self._classes.get(y)
        if number is None:
            if y is None or y != y:
                raise ValueError(f"y: {y!r} is not a class")
            number = len(self._classes)
            if number > 1:
                table = self._welcome(x)
                self._settle()
                table.add_classes(0, number + 1)
            self._classes[y] = number
        self._learn(x, float(number), w)

    def learn_many(self, X: pd.DataFrame, y: pd.Series, w: float = 1.0) -> None:
        """The same as `learn_one` on each row, in order."""
        if len(X) != len(y):
            raise ValueError(f"y: {len(y)} targets for {len(X)} rows")
        for row, label in zip(X.to_dict("records"), y.tolist(), strict=True):
            self.learn_one(row, label, w)

    def predict_proba_one(self, x: dict, **kwargs: Any) -> dict[Any, float]:
        """The probability of each class seen so far."""
        told = self._ask([x])
        if told is None:
            return {}
        return dict(zip(self._classes, told.probabilities[0].tolist(), strict=False))

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """The probability of each class seen so far, for each row."""
        told = self._ask(X.to_dict("records")) if len(X) else None
        if told is None:
            return pd.DataFrame(index=X.index)
        shown = told.probabilities[:, : len(self._classes)]
        return pd.DataFrame(shown, columns=pd.Index(list(self._classes)), index=X.index)
