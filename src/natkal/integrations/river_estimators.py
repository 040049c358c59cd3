"""river estimators on dictionaries: a regressor, and a classifier for any number of classes."""

from typing import Any

import numpy as np
import pandas as pd
from river import base, proba

from natkal.integrations.laws import NUMBER, Law, SlotLaw
from natkal.integrations.river_base import MISSING, Slots, check_options


class _Kalman(base.Estimator):
    """Stores what it is told."""

    _law: Law

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] | None = None,
        prior_scale: float = 1.0,
        fading: float = 3e-4,
        standardize: bool = True,
        seed: int = 0,
        learner: str = "single",
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.prior_scale = prior_scale
        self.fading = fading
        self.standardize = standardize
        self.seed = seed
        self.learner = learner
        hidden = tuple(hidden_layer_sizes or ())
        check_options(hidden, learner, prior_scale, fading)
        self._slots = Slots(
            self._law,
            hidden,
            standardize,
            learner,
            {"prior_scale": prior_scale, "fading": fading, "seed": seed or 0},
        )


class KalmanRegressor(_Kalman, base.MiniBatchRegressor):
    """Regression with its uncertainty, one row at a time; linear, or a network with `hidden_layer_sizes`.

    The noise is learned with the mean. Features and target are standardised inside by the rows before, and an absent
    feature is its mean so far; with `standardize=False` values are taken as they come, and an absent one is 0.
    Features may come and go. `prior_scale` widens or narrows the prior variance 1/fan-in of the weights; `fading` is
    the share of what is known that is forgotten with each row. With `learner="auto"` six filters of different prior
    scale and fading run, and the data weigh them: nothing to tune, several times the time.

    Examples
    --------
    >>> from natkal.river import KalmanRegressor
    >>> model = KalmanRegressor()
    >>> for i in range(100):
    ...     model.learn_one({"a": i % 7, "b": i % 5}, 2.0 * (i % 7) - i % 5)
    >>> round(model.predict_one({"a": 3, "b": 1}))
    5

    """

    _law = NUMBER

    def learn_one(self, x: dict, y: Any, w: float = 1.0) -> None:
        """Learn one row, which counts `w` times."""
        try:
            target = float(y)
        except (TypeError, ValueError):
            target = MISSING
        if not target - target == 0:
            raise ValueError(f"y: {y!r} is not a finite number")
        self._slots.learn_row(x, target, w, 1)

    def learn_many(self, X: pd.DataFrame, y: pd.Series, w: float = 1.0) -> None:
        """The same as `learn_one` on each row, in order."""
        targets = np.asarray(y, np.float64)
        if not np.isfinite(targets).all():
            raise ValueError(f"y: {targets[~np.isfinite(targets)][0]} is not a finite number")
        self._slots.learn_rows(X, targets, w, 1)

    def predict_one(self, x: dict, with_dist: bool = False) -> Any:
        """The expected target, or with `with_dist` its law: noise and what is not known of the parameters."""
        summary = self._slots.predict_row(x, 1)
        mean, spread = (0.0, np.inf) if summary is None else summary.tolist()
        return proba.Gaussian._from_state(n=1, m=mean, var=spread**2, ddof=0) if with_dist else mean

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """The expected target of each row."""
        summary = self._slots.predict_rows(X, 1)
        return pd.Series(np.zeros(len(X)) if summary is None else summary[:, 0], index=X.index)


class KalmanClassifier(_Kalman, base.MiniBatchClassifier):
    """Logistic or softmax regression, or a network with `hidden_layer_sizes`, one row at a time.

    Classes need not be known before: a new one starts from the prior and changes nothing that was learned of the
    others. Options as for `KalmanRegressor`.

    Examples
    --------
    >>> from natkal.river import KalmanClassifier
    >>> model = KalmanClassifier()
    >>> for i in range(300):
    ...     model.learn_one({"a": i % 7, "b": i % 5}, i % 7 > i % 5)
    >>> model.predict_one({"a": 6, "b": 0}), model.predict_one({"a": 0, "b": 4})
    (True, False)

    """

    _law = SlotLaw(2)

    def __init__(
        self,
        hidden_layer_sizes: tuple[int, ...] | None = None,
        prior_scale: float = 1.0,
        fading: float = 3e-4,
        standardize: bool = True,
        seed: int = 0,
        learner: str = "single",
    ):
        super().__init__(hidden_layer_sizes, prior_scale, fading, standardize, seed, learner)
        self._classes: dict[Any, int] = {}

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: dict, y: Any, w: float = 1.0) -> None:
        """Learn one row, which counts `w` times."""
        number = self._classes.get(y)
        if number is None:
            number = self._welcome(y, x)
        self._slots.learn_row(x, float(number), w, max(len(self._classes), 2))

    def learn_many(self, X: pd.DataFrame, y: pd.Series, w: float = 1.0) -> None:
        """The same as `learn_one` on each row, in order."""
        labels = y.tolist()
        if len(labels) != len(X):
            raise ValueError(f"y: {len(labels)} targets for {len(X)} rows")
        first = 0
        while first < len(labels):  # as far as no new class comes
            number = self._classes.get(labels[first])
            numbers = [self._welcome(labels[first], X.columns) if number is None else number]
            for label in labels[first + 1 :]:
                if label not in self._classes:
                    break
                numbers.append(self._classes[label])
            part = slice(first, first + len(numbers))
            known = max(len(self._classes), 2)
            self._slots.learn_rows(X.iloc[part], np.array(numbers, np.float64), w, known)
            first += len(numbers)

    def predict_proba_one(self, x: dict, **kwargs: Any) -> dict[Any, float]:
        """The probability of each class seen so far."""
        summary = self._slots.predict_row(x, len(self._classes))
        return {} if summary is None else dict(zip(self._classes, summary.tolist(), strict=False))

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """The probability of each class seen so far, for each row."""
        summary = self._slots.predict_rows(X, len(self._classes))
        if summary is None:
            return pd.DataFrame(index=X.index)
        return pd.DataFrame(summary[:, : len(self._classes)], columns=pd.Index(list(self._classes)), index=X.index)

    def _welcome(self, label: Any, features: Any) -> int:
        """A number for a new class, and room for it."""
        if label is None or label != label:
            raise ValueError(f"y: {label!r} is not a class")
        number = len(self._classes)
        slots = self._slots.law.summary_size
        if number > 1:  # two classes have their slots from the start
            self._slots.welcome(features, SlotLaw(2 * slots) if number >= slots else None, outputs=number)
        self._classes[label] = number
        return number
