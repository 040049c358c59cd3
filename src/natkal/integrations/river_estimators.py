"""river estimators on dictionaries: a regressor, and a classifier for any number of classes."""

import math
from typing import Any

import numpy as np
import pandas as pd
from river import base, proba

from natkal.integrations.river_base import KalmanEstimator
from natkal.tables.table import TargetShape


class KalmanRegressor(KalmanEstimator, base.MiniBatchRegressor):
    """Regression with its uncertainty, one row at a time, as `natkal learn` does; no parameter needs to be set.

    Features may come and go: an absent one counts as its mean so far, or as 0 with `standardize=False`, which takes
    values as they come. Features and target are standardised inside, and the noise is learned.

    `learner="auto"` is a mixture of linear models and networks with several priors and fadings, weighed by the data;
    `"single"` is one filter, with this `prior_scale` (times 1/fan-in, the prior variance of the weights) and `fading`
    (the share of what is known that is forgotten with each row). `model` is `"auto"`, `"linear"`, `"mlp:64,64"` or
    `"gru:8"`; `hidden_layer_sizes=(64,)` means `"mlp:64"` and `()` means `"linear"`. `past` says which earlier targets
    are inputs too: `"auto"`, `"none"`, or lags such as `"1,2,24"`. `budget` is `"fast"`, `"auto"`,
    `"best"` or microseconds a row, `memory` the most bytes of the state (`"1MB"`).

    Examples
    --------
    >>> from natkal.river import KalmanRegressor
    >>> model = KalmanRegressor(learner="single", past="none")
    >>> for i in range(100):
    ...     model.learn_one({"a": i % 7, "b": i % 5}, 2.0 * (i % 7) - i % 5)
    >>> round(model.predict_one({"a": 3, "b": 1}))
    5

    """

    _target = TargetShape("regression")

    def learn_one(self, x: dict, y: Any, w: float = 1.0) -> None:
        """Learn one row, which counts `w` times."""
        try:
            target = float(y)
        except (TypeError, ValueError):
            target = math.nan
        if not math.isfinite(target):
            raise ValueError(f"y: {y!r} is not a finite number")
        self._learn_row(x, target, w)

    def learn_many(self, X: pd.DataFrame, y: pd.Series, w: float = 1.0) -> None:
        """The same as `learn_one` on each row, in order."""
        targets = np.asarray(y, np.float64)
        if not np.isfinite(targets).all():
            raise ValueError(f"y: {targets[~np.isfinite(targets)][0]} is not a finite number")
        self._learn_rows(X, targets, w)

    def predict_one(self, x: dict, with_dist: bool = False) -> Any:
        """The expected target, or with `with_dist` a normal law: noise and what is not known of the parameters."""
        found = self._predict_row(x)
        mean, spread = (0.0, math.inf) if found is None else (float(found.value), float(found.spread))
        return proba.Gaussian._from_state(n=1, m=mean, var=spread**2, ddof=0) if with_dist else mean

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """The expected target of each row."""
        found = self._predict_rows(X)
        return pd.Series(np.zeros(len(X)) if found is None else found.value, index=X.index)


class KalmanClassifier(KalmanEstimator, base.MiniBatchClassifier):
    """Class probabilities, one row at a time; parameters as for `KalmanRegressor`.

    Classes need not be known before: a new one starts from the prior and changes nothing that was learned of the
    others.

    Examples
    --------
    >>> from natkal.river import KalmanClassifier
    >>> model = KalmanClassifier(learner="single", past="none")
    >>> for i in range(300):
    ...     model.learn_one({"a": i % 7, "b": i % 5}, i % 7 > i % 5)
    >>> model.predict_one({"a": 6, "b": 0}), model.predict_one({"a": 0, "b": 4})
    (True, False)

    """

    _target = TargetShape("binary", 2, 2)

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: dict, y: Any, w: float = 1.0) -> None:
        """Learn one row, which counts `w` times."""
        number = self._number(y)
        self._make_room(number, x)
        self._learn_row(x, float(number), w)

    def learn_many(self, X: pd.DataFrame, y: pd.Series, w: float = 1.0) -> None:
        """The same as `learn_one` on each row, in order."""
        if len(y) != len(X):
            raise ValueError(f"y: {len(y)} targets for {len(X)} rows")
        numbers = np.array([self._number(label) for label in y.tolist()], np.int64)
        first = 0
        while first < len(numbers):  # as far as there is room for the classes
            room = self._make_room(int(numbers[first]), X.columns)
            beyond = numbers[first:] >= room
            last = first + int(np.argmax(beyond)) if beyond.any() else len(numbers)
            self._learn_rows(X.iloc[first:last], numbers[first:last].astype(np.float64), w)
            first = last

    def predict_proba_one(self, x: dict, **kwargs: Any) -> dict[Any, float]:
        """The probability of each class seen so far."""
        found = self._predict_row(x)
        return {} if found is None else dict(zip(self._classes, self._seen(found.probabilities).tolist(), strict=True))

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """The probability of each class seen so far, for each row."""
        found = self._predict_rows(X)
        if found is None:
            return pd.DataFrame(index=X.index)
        return pd.DataFrame(self._seen(found.probabilities), columns=pd.Index(list(self._classes)), index=X.index)

    def _seen(self, probabilities: np.ndarray) -> np.ndarray:
        """Those of the classes seen; only the second of two may be awaited."""
        seen = probabilities[..., : len(self._classes)]
        return seen if len(self._classes) > 1 else np.ones_like(seen)

    def _number(self, label: Any) -> int:
        """The number of a class: how many others were seen before it."""
        if label is None or label != label:
            raise ValueError(f"y: {label!r} is not a class")
        return self._classes.setdefault(label, len(self._classes))

    def _make_room(self, number: int, features: Any) -> int:
        """How many classes there is room for, after this one has its place."""
        table = self._welcome(features)
        if number >= table.targets[0].classes:
            self._settle()
            table.add_classes(0, number + 1)
        return table.targets[0].classes
