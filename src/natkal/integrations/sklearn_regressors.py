"""scikit-learn regressors: real targets with their noise, and counts."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.validation import column_or_1d, validate_data

from natkal.app.session.metrics import interval
from natkal.integrations.laws import COUNT, NUMBER, Law
from natkal.integrations.sklearn_base import KalmanEstimator
from natkal.tabular.schema import Target


class _Regressor(RegressorMixin, KalmanEstimator):
    """`fit`, `partial_fit`, and predictions with their spread."""

    _task_law: Law
    _task: str
    _least = -np.inf

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "_Regressor":
        """Forget everything, then learn all rows in one pass, in order."""
        X, y = self._validated(X, y, reset=True)
        self._begin(self._task_law)
        return self._learn(X, y, sample_weight, whole=True)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "_Regressor":
        """Learn more rows, in order; how a stream is cut into chunks changes nothing."""
        new = not hasattr(self, "state_")
        if self._seen_to_be_good(X, y) and y.min() >= self._least:
            self.n_features_in_ = X.shape[1]
        else:
            X, y = self._validated(X, y, reset=new)
        if new:
            self._begin(self._task_law)
        return self._learn(X, y, sample_weight, whole=False)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The expected target of each row; with `return_std`, also its standard deviation: noise and parameters."""
        summary = self._summary(X)
        return (summary[:, 0], summary[:, 1]) if return_std else summary[:, 0]

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Lower and upper end, (n, 2), of an interval that should hold this share of the targets."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage: must lie between 0 and 1, got {coverage}")
        target = Target(name="y", task=self._task, classes=(), why="")
        return np.stack(interval(target, self._summary(X), coverage), axis=1)

    def _validated(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, reset=reset)
        return X, column_or_1d(y, warn=True).astype(np.float64)


class KalmanRegressor(_Regressor):
    """Regression with its uncertainty, learned row by row; linear, or a network with `hidden_layer_sizes`.

    The noise is learned with the mean, and features and target are standardised inside (`standardize`). `prior_scale`
    widens or narrows the prior variance 1/fan-in of the weights; `fading` is the share of what is known that is
    forgotten with each row: 0 never forgets, 1e-3 remembers about the last thousand rows. With `learner="auto"` six
    filters of different prior scale and fading run, and the data weigh them: nothing to tune, several times the time.

    >>> import numpy as np
    >>> from natkal.sklearn import KalmanRegressor
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = KalmanRegressor().fit(X, X[:, 0] - 2 * X[:, 1])
    >>> mean, std = model.predict([[1.0, 1.0]], return_std=True)
    >>> bool(abs(mean[0] + 1) < 0.1)
    True
    """

    _task_law = NUMBER
    _task = "regression"


class KalmanCountRegressor(_Regressor):
    """Poisson regression with a log link, learned row by row; options as for `KalmanRegressor`.

    Targets are counts, or any rates of at least 0 with the exposure as `sample_weight`. `score` is the share of
    deviance explained, D^2, as for scikit-learn's `PoissonRegressor`.
    """

    _task_law = COUNT
    _task = "count"
    _least = 0

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """D^2: 1 is perfect, 0 as good as the mean."""
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))

    def _validated(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        X, y = super()._validated(X, y, reset=reset)
        if (y < 0).any():
            row = int(np.argmax(y < 0))
            raise ValueError(f"y: a count cannot be negative, got {y[row]} (row {row})")
        return X, y

    def __sklearn_tags__(self) -> Any:
        """Targets are not negative."""
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
