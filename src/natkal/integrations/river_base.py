"""What the river estimators share: features that come and go, rows that wait, and the table learner."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from river import base

from natkal.integrations.estimator_core import PortableLearner, options_of
from natkal.tables.engine.batch import TableBatch, TargetPrediction
from natkal.tables.table import TargetShape

MAX_WAITING_ROWS = 256
"""Rows that may wait before they are learned: no result depends on it, since they are learned before any question."""


class KalmanEstimator(base.Estimator):
    """Stores its parameters and checks them; the learner is made for the features of the first row."""

    _target: TargetShape

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] | None = None,
        learner: str = "auto",
        model: str = "auto",
        prior_scale: float | None = None,
        fading: float | None = None,
        past: str = "auto",
        budget: str | float = "auto",
        memory: str | int | None = None,
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
        self.memory = memory
        self.standardize = standardize
        self.seed = seed
        options_of(self, seed or 0)  # refuses what no learner can be built from
        self._table: PortableLearner | None = None
        self._columns: dict[Any, int] = {}
        self._classes: dict[Any, int] = {}
        self._waiting: list[tuple[list[Any], float, float]] = []

    # -- learning ------------------------------------------------------------------------------------------------------

    def _learn_row(self, x: Mapping[Any, Any], target: float, weight: float) -> None:
        """One row; it is checked now, and learned when somebody asks or enough of them have come."""
        _check_weight(weight)
        self._welcome(x)
        if weight > 0:
            self._waiting.append((self._numbers(x), target, weight))
        if len(self._waiting) == MAX_WAITING_ROWS:
            self._settle()

    def _learn_rows(self, X: pd.DataFrame, targets: np.ndarray, weight: float) -> None:
        """The rows of a frame, in order."""
        _check_weight(weight)
        if len(X) != len(targets):
            raise ValueError(f"y: {len(targets)} targets for {len(X)} rows")
        table = self._welcome(X.columns)
        self._settle()
        if weight > 0 and len(X):
            table.learn(table.rows(self._frame(X), targets[:, None], np.full(len(X), float(weight))))

    def _settle(self) -> None:
        """Learn all rows that wait."""
        if self._waiting:
            assert self._table is not None
            self._table.learn(self._waiting_rows())

    def _waiting_rows(self) -> TableBatch:
        assert self._table is not None
        numbers, targets, weights = zip(*self._waiting, strict=True)
        self._waiting = []
        return self._table.rows(_filled(numbers, len(self._columns)), np.array(targets)[:, None], np.array(weights))

    def _welcome(self, features: Any) -> PortableLearner:
        """The learner with a column for each of these features."""
        if self._table is None:
            self._columns = {name: column for column, name in enumerate(features)}
            scaled = [True] * len(self._columns)
            self._table = PortableLearner(options_of(self, self.seed or 0), scaled, [self._target], limits=False)
        new = [name for name in features if name not in self._columns]
        if new:
            self._settle()
            for name in new:
                self._columns[name] = len(self._columns)
            self._table.add_features([True] * len(new))
        return self._table

    # -- predictions ---------------------------------------------------------------------------------------------------

    def _predict_row(self, x: Mapping[Any, Any]) -> TargetPrediction | None:
        """What is predicted for one row; None before anything was learned."""
        if self._table is None:
            return None
        asked = _filled([self._numbers(x)], len(self._columns))
        learned = None
        if len(self._waiting) == 1:  # learn, predict, learn, predict: one call for both
            learned = self._waiting_rows()
        self._settle()
        return self._table.predict_row(learned, self._table.rows(asked))

    def _predict_rows(self, X: pd.DataFrame) -> TargetPrediction | None:
        """What is predicted for the rows of a frame; None before anything was learned."""
        if self._table is None:
            return None
        self._settle()
        return self._table.predict_rows(self._table.rows(self._frame(X)))

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _numbers(self, x: Mapping[Any, Any]) -> list[Any]:
        """The features in the order of their columns: absent ones are missing, unknown ones are left out."""
        values = [x.get(name, math.nan) for name in self._columns]
        try:
            return [math.nan if value is None else float(value) for value in values]
        except (TypeError, ValueError) as error:
            raise _explained(x) from error

    def _frame(self, X: pd.DataFrame) -> np.ndarray:
        """The columns of a frame that are features, as numbers."""
        rows = np.full((len(X), len(self._columns)), np.nan)
        for name in X.columns:
            if name in self._columns:
                try:
                    rows[:, self._columns[name]] = X[name].to_numpy(np.float64, na_value=np.nan)
                except (TypeError, ValueError) as error:
                    raise _explained(dict(X[[name]].iloc[0])) from error
        return _finite(rows)


def _filled(rows: Any, columns: int) -> np.ndarray:
    """Rows of one length: features that came after a row are missing in it."""
    return _finite(np.array([[*row, *[math.nan] * (columns - len(row))] for row in rows]).reshape(len(rows), columns))


def _finite(rows: np.ndarray) -> np.ndarray:
    """An infinite value is a missing one."""
    return np.where(np.isinf(rows), np.nan, rows)


def _check_weight(weight: float) -> None:
    if not 0 <= weight < math.inf:
        raise ValueError(f"w: must be finite and at least 0, got {weight}")


def _explained(x: Mapping[Any, Any]) -> Exception:
    for name, value in x.items():
        try:
            float(math.nan if value is None else value)
        except (TypeError, ValueError):
            return TypeError(f"feature {name!r} is {value!r}, not a number; encode it first (OneHotEncoder)")
    return TypeError("every feature must be a number")
