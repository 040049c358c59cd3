"""A scikit-learn classifier for two classes or more."""

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import column_or_1d, validate_data

from natkal.integrations.laws import SlotLaw
from natkal.integrations.sklearn_base import KalmanEstimator


class KalmanClassifier(ClassifierMixin, KalmanEstimator):
    """Logistic or softmax regression, or a network with `hidden_layer_sizes`, learned row by row.

    Options as for `KalmanRegressor`. `partial_fit` is told all `classes` with the first rows.

    >>> import numpy as np
    >>> from natkal.sklearn import KalmanClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = KalmanClassifier().fit(X, np.where(X[:, 0] > X[:, 1], "yes", "no"))
    >>> model.predict([[2.0, -2.0], [-2.0, 2.0]]).tolist()
    ['yes', 'no']
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "KalmanClassifier":
        """Forget everything, then learn all rows in one pass, in order."""
        X, y = self._validated(X, y, reset=True)
        self._begin_classes(unique_labels(y))
        return self._learn(X, self._numbers(y), sample_weight, whole=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "KalmanClassifier":
        """Learn more rows, in order. The first call names all `classes`, unless its rows hold every one."""
        new = not hasattr(self, "state_")
        if self._seen_to_be_good(X, y) and not (new and classes is None):
            self.n_features_in_ = X.shape[1]
        else:
            X, y = self._validated(X, y, reset=new)
        if new:
            self._begin_classes(unique_labels(y if classes is None else classes))
        elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(
                f"`classes={classes!r}` is not the same as on last call to partial_fit, was: {self.classes_!r}"
            )
        return self._learn(X, self._numbers(y), sample_weight, whole=False)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, (n, classes), in the order of `classes_`."""
        return self._summary(X)[:, : len(self.classes_)]

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _begin_classes(self, classes: np.ndarray) -> None:
        self.classes_ = classes
        self._begin(SlotLaw(max(len(classes), 2)))

    def _numbers(self, y: np.ndarray) -> np.ndarray:
        """Labels as numbers 0, 1, ..."""
        position = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        wrong = self.classes_[position] != y
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(f"y: {y.tolist()[row]!r} is none of the classes {self.classes_.tolist()} (row {row})")
        return position

    def _validated(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(self, X, y, dtype=np.float64, reset=reset)
        y = column_or_1d(y, warn=True)
        if reset:  # later rows must hold these classes
            check_classification_targets(y)
        return X, y
