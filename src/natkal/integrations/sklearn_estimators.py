"""scikit-learn estimators: a classifier, a regressor, and a regressor of counts."""

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.multiclass import check_classification_targets, unique_labels

from natkal.integrations.sklearn_base import KalmanEstimator
from natkal.tables.engine.batch import TargetPrediction
from natkal.tables.table import TargetShape


class KalmanClassifier(ClassifierMixin, KalmanEstimator):
    """Class probabilities, learned row by row; parameters as for `KalmanRegressor`.

    The classes of `fit` are those of its rows, in sorted order; those of `partial_fit` are the ones it is told with its
    first rows, or has in them, and any that appear later, behind the others.

    >>> import numpy as np
    >>> from natkal.sklearn import KalmanClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = KalmanClassifier(learner="single").fit(X, np.where(X[:, 0] > X[:, 1], "yes", "no"))
    >>> model.predict([[2.0, -2.0], [-2.0, 2.0]]).tolist()
    ['yes', 'no']
    """

    _target_is_numeric = False

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "KalmanClassifier":
        """Start anew and learn all rows, which count alike, whatever their order; see `n_iter`."""
        X, y = self._checked(X, y, reset=True)
        self._begin_classes(X, unique_labels(y), forget=False)
        return self._fit(X, self._numbers(y), sample_weight)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "KalmanClassifier":
        """Learn more rows, in order; how a stream is cut into chunks changes nothing once its classes are known."""
        self._learn_in_order(X, y, classes, sample_weight)
        return self

    def learn_predicted(self, X: Any, y: Any, classes: Any = None) -> TargetPrediction:
        """`partial_fit`, and what was predicted for each row before it was learned."""
        return self._learn_in_order(X, y, classes, None)[0]

    def _learn_in_order(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> list[TargetPrediction]:
        new = self._is_new
        X, y = self._checked(X, y, reset=new)
        if new:
            self._begin_classes(X, unique_labels(y if classes is None else classes), forget=True)
        elif classes is not None and not set(np.unique(classes).tolist()) <= set(self.classes_.tolist()):
            raise ValueError(f"classes: {classes!r} is not the same as on the first call, was {self.classes_!r}")
        return self._learn(X, self._numbers(y), sample_weight)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        numbers = self.predict_proba(X).argmax(axis=1)
        return self.classes_[numbers]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, (n, classes), in the order of `classes_`."""
        probabilities = self._outcome(X).probabilities
        return probabilities[:, : len(self.classes_)]

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    @property
    def coef_(self) -> np.ndarray:
        """Log-odds per unit of each feature, (classes, features), against the first class; of two classes one row."""
        return self._by_class(self._coefficients().weights)

    @property
    def intercept_(self) -> np.ndarray:
        """Log-odds of each class where every feature is 0."""
        return self._by_class(self._coefficients().intercepts)

    @property
    def coef_std_(self) -> np.ndarray:
        """The standard errors of `coef_`."""
        return self._by_class(self._coefficients().weight_deviations)

    @property
    def intercept_std_(self) -> np.ndarray:
        """The standard errors of `intercept_`."""
        return self._by_class(self._coefficients().intercept_deviations)

    def _by_class(self, found: np.ndarray) -> np.ndarray:
        """Rows as scikit-learn's linear classifiers have them; those of the first class are 0."""
        count = len(self.classes_)
        return found[:1] if count == 2 else np.concatenate([np.zeros_like(found[:1]), found[: count - 1]])

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = self._rows_and_targets(X, y, reset=reset)
        if reset or np.asarray(y).dtype.kind == "f":
            check_classification_targets(y)
        return X, y

    def _begin_classes(self, X: np.ndarray, classes: np.ndarray, *, forget: bool) -> None:
        self.classes_ = classes
        task = "binary" if len(classes) <= 2 else "multiclass"
        self._begin(X, TargetShape(task, max(len(classes), 2), len(classes)), forget=forget)

    def _numbers(self, y: np.ndarray) -> np.ndarray:
        """The place of each label in `classes_`; a label that is new gets the next one, and room is made for it."""
        labels = y.tolist()
        places = {label: float(place) for place, label in enumerate(self.classes_.tolist())}
        new = [label for label in dict.fromkeys(labels) if label not in places]
        if new:
            places.update({label: float(len(places) + place) for place, label in enumerate(new)})
            joined = np.concatenate([self.classes_, np.array(new)])
            if joined.tolist() != list(places):
                raise ValueError(f"y: {new[0]!r} is not a label like those before, {self.classes_.tolist()[:5]}")
            self.classes_ = joined
            self._table.add_classes(0, len(self.classes_))
        return np.array([places[label] for label in labels])


class _Regressor(RegressorMixin, KalmanEstimator):
    """`fit`, `partial_fit`, and predictions with their spread."""

    _task: str

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "_Regressor":
        """Start anew and learn all rows, which count alike, whatever their order; see `n_iter`."""
        X, y = self._checked(X, y, reset=True)
        self._begin(X, TargetShape(self._task), forget=False)
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "_Regressor":
        """Learn more rows, in order; how a stream is cut into chunks changes nothing."""
        self._learn_in_order(X, y, sample_weight)
        return self

    def learn_predicted(self, X: Any, y: Any) -> TargetPrediction:
        """`partial_fit`, and what was predicted for each row before it was learned."""
        return self._learn_in_order(X, y, None)[0]

    def _learn_in_order(self, X: Any, y: Any, sample_weight: Any) -> list[TargetPrediction]:
        new = self._is_new
        X, y = self._checked(X, y, reset=new)
        if new:
            self._begin(X, TargetShape(self._task), forget=True)
        return self._learn(X, y, sample_weight)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The expected target of each row; with `return_std`, also its standard deviation: noise and parameters."""
        outcome = self._outcome(X)
        return (outcome.value, outcome.spread) if return_std else outcome.value

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Lower and upper end, (n, 2), of an interval that should hold this share of the targets: two quantiles."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage: must lie between 0 and 1, got {coverage}")
        outcome = self._outcome(X, level=float(coverage))
        return np.stack([outcome.low, outcome.high], axis=1)

    @property
    def coef_(self) -> np.ndarray:
        """The change of the target (of counts: of its logarithm) per unit of each feature."""
        return self._coefficients().weights[0]

    @property
    def intercept_(self) -> float:
        """The target (of counts: its logarithm) where every feature is 0."""
        return float(self._coefficients().intercepts[0])

    @property
    def coef_std_(self) -> np.ndarray:
        """The standard errors of `coef_`."""
        return self._coefficients().weight_deviations[0]

    @property
    def intercept_std_(self) -> float:
        """The standard error of `intercept_`."""
        return float(self._coefficients().intercept_deviations[0])

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = self._rows_and_targets(X, y, reset=reset)
        return X, y.astype(np.float64)


class KalmanRegressor(_Regressor):
    """Regression with its uncertainty, learned row by row, as `natkal learn` does; no parameter needs to be set.

    `learner="auto"` is a mixture of linear models and networks with several priors and fadings, weighed by the data;
    `"single"` is one filter. `model` is `"auto"`, `"linear"`, `"mlp:64,64"`, `"gru:8"` or a function of your own,
    `"package.module:function"`; `hidden_layer_sizes=(64,)` means `"mlp:64"` and `()` means `"linear"`. `prior_scale`
    (times 1/fan-in, the prior variance of the weights) and `fading` (the share of what is known that is forgotten with
    each row) are those of a single filter. `past` says which earlier targets are inputs too, such as `"1,2,24"`: for
    rows in their order in time. `budget` is `"fast"`, `"auto"`, `"best"` or microseconds a row, `memory` the most
    bytes of the state (`"1MB"`). The noise is learned, and features and
    targets are standardised inside (`standardize`). A missing value is NaN. Columns of a frame that are not numbers are
    encoded.

    `fit` takes its rows as a table in no order: no member forgets. It goes through them `n_iter` times (`"auto"`: three
    times up to 20,000 rows, once beyond), each pass for its share of the weight, so that every row counts once.
    `partial_fit` takes a stream: members that forget are weighed against those that do not. `past` is `"none"` unless
    given.

    A linear model of one filter (`model="linear", learner="single"`) has `coef_` and `intercept_`, and their
    standard errors `coef_std_` and `intercept_std_`.

    >>> import numpy as np
    >>> from natkal.sklearn import KalmanRegressor
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = KalmanRegressor(learner="single").fit(X, X[:, 0] - 2 * X[:, 1])
    >>> mean, std = model.predict([[1.0, 1.0]], return_std=True)
    >>> bool(abs(mean[0] + 1) < 0.1)
    True
    """

    _task = "regression"


class KalmanCountRegressor(_Regressor):
    """Regression of counts with a log link and any dispersion, learned row by row; parameters as `KalmanRegressor`.

    Targets are counts, or any rates of at least 0 with the exposure as `sample_weight`. `score` is the share of
    deviance explained, D^2, as for scikit-learn's `PoissonRegressor`.
    """

    _task = "count"

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """D^2: 1 is perfect, 0 as good as the mean."""
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def _checked(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = super()._checked(X, y, reset=reset)
        if (y < 0).any():
            row = int(np.argmax(y < 0))
            raise ValueError(f"y: a count cannot be negative, got {y[row]} (row {row})")
        return X, y

    def __sklearn_tags__(self) -> Any:
        """Targets are not negative."""
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
