"""A fitted estimator of anybody's, kept alive: `adapted(estimator).partial_fit(X, y)`.

Beside the estimator's answer, left as it is, run a linear correction of the answer, the default learner, and the
default learner with the answer as one more column: a fixed share of these, and around it a mixture of two with the
estimator alone (`natkal.adapting.outer`), so that the log loss is never more than ln 2 above the estimator's own.
"""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.utils.validation import check_is_fitted

from natkal.adapting.outer import ErrorLaw, OuterMixture
from natkal.integrations.sklearn_estimators import KalmanClassifier, KalmanRegressor

LEAST_PROBABILITY = 1e-6
"""As inputs of the others, probabilities of the estimator are no nearer to 0: their log-odds are then bounded."""


def adapted(estimator: Any, **options: Any) -> "AdaptedClassifier | AdaptedRegressor":
    """A fitted scikit-learn, LightGBM or XGBoost estimator that goes on learning, row by row; it is itself left alone.

    `options` are those of `KalmanClassifier` or `KalmanRegressor`, for the learners beside it: `past="1,2,3"` where
    rows come in their order in time, `budget="fast"` for linear ones alone.

    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from natkal.sklearn import adapted
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> fitted = LinearRegression().fit(X[:100], X[:100, 0])
    >>> model = adapted(fitted, learner="single").partial_fit(X[100:], 2 * X[100:, 0] + 1)  # the world has changed
    >>> bool(abs(model.predict([[1.0, 0.0]])[0] - 3) < 0.1)
    True
    """
    check_is_fitted(estimator)
    return (AdaptedClassifier if is_classifier(estimator) else AdaptedRegressor)(estimator, options)


class _Adapted(BaseEstimator):
    """The estimator, the learners beside it, and their weights."""

    _kind: Any

    def __init__(self, estimator: Any, options: dict[str, Any] | None = None):
        self.estimator = estimator
        self.options = options

    @property
    def weights_(self) -> dict[str, float]:
        """How much the next prediction owes to each; all to the estimator before anything was learned."""
        names = ("estimator", "corrected", "natkal", "natkal with the answer")
        return dict(zip(names, (1.0, 0.0, 0.0, 0.0) if self._is_new else self._outer.weights.tolist(), strict=True))

    def _inputs(self, X: Any, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What each learner beside the estimator sees of these rows."""
        rows = np.asarray(X, np.float64)
        return answers, rows, np.concatenate([rows, answers], axis=1)

    def _begin(self) -> None:
        options = self.options or {}
        linear = {**options, "learner": "single", "model": "linear", "past": "none"}
        self._beside = [self._kind(**linear), self._kind(**options), self._kind(**options)]
        self._outer = OuterMixture(len(self._beside) + 1)

    @property
    def _is_new(self) -> bool:
        return "_outer" not in self.__dict__


class AdaptedClassifier(ClassifierMixin, _Adapted):
    """Class probabilities of an estimator that goes on learning; made by `adapted`."""

    _kind = KalmanClassifier

    @property
    def classes_(self) -> np.ndarray:
        """The estimator's."""
        return self.estimator.classes_

    def partial_fit(self, X: Any, y: Any) -> "AdaptedClassifier":
        """Learn rows in order, each predicted before; `log_loss_` is the mean loss of those predictions."""
        if self._is_new:
            self._begin()
        probabilities = self.estimator.predict_proba(X)
        places = {label: place for place, label in enumerate(self.classes_.tolist())}
        unknown = [label for label in np.asarray(y).tolist() if label not in places]
        if unknown:
            raise ValueError(f"y: {unknown[0]!r} is not among the classes that the estimator was fitted with")
        own = probabilities[np.arange(len(y)), [places[label] for label in np.asarray(y).tolist()]]
        with np.errstate(divide="ignore"):
            told = [np.log(own)]
        for learner, rows in zip(self._beside, self._inputs(X, _log_odds(probabilities)), strict=True):
            told.append(learner.learn_predicted(rows, y, classes=self.classes_).log_prob)
        _, log_prob = self._outer.learn(np.stack(told, axis=1))
        self.log_loss_ = -log_prob.mean()
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, (n, classes), in the order of the estimator's classes."""
        probabilities = self.estimator.predict_proba(X)
        if self._is_new:
            return probabilities
        parts = [probabilities]
        for learner, rows in zip(self._beside, self._inputs(X, _log_odds(probabilities)), strict=True):
            parts.append(learner.predict_proba(rows))
        return np.einsum("e,enk->nk", self._outer.weights, np.stack(parts))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class AdaptedRegressor(RegressorMixin, _Adapted):
    """Predictions of an estimator that goes on learning; made by `adapted`.

    The estimator's answer is the centre of a Student's t whose scale is that of its errors so far.
    """

    _kind = KalmanRegressor

    def partial_fit(self, X: Any, y: Any) -> "AdaptedRegressor":
        """Learn rows in order, each predicted before; `log_loss_` is the mean loss of those predictions."""
        answers, y = np.asarray(self.estimator.predict(X), np.float64), np.asarray(y, np.float64)
        if self._is_new:
            self._begin()
            self._errors = ErrorLaw(answers)
        told = [self._errors.learn(y - answers)]
        for learner, rows in zip(self._beside, self._inputs(X, answers[:, None]), strict=True):
            told.append(learner.learn_predicted(rows, y).log_prob)
        _, log_prob = self._outer.learn(np.stack(told, axis=1))
        self.log_loss_ = -log_prob.mean()
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The expected target of each row; with `return_std`, also its standard deviation."""
        answers = np.asarray(self.estimator.predict(X), np.float64)
        if self._is_new:
            return (answers, np.full(len(answers), np.nan)) if return_std else answers
        means, spreads = [answers], [np.full(len(answers), self._errors.deviation)]
        for learner, rows in zip(self._beside, self._inputs(X, answers[:, None]), strict=True):
            mean, spread = learner.predict(rows, return_std=True)
            means.append(mean)
            spreads.append(spread)
        weights, each = self._outer.weights[:, None], np.stack(means)
        mean = (weights * each).sum(axis=0)
        variance = (weights * (np.square(np.stack(spreads)) + np.square(each - mean))).sum(axis=0)
        return (mean, np.sqrt(variance)) if return_std else mean


def _log_odds(probabilities: np.ndarray) -> np.ndarray:
    """Log-odds of every class but the first against it."""
    bounded = np.log(np.clip(probabilities, LEAST_PROBABILITY, None))
    return bounded[:, 1:] - bounded[:, :1]
