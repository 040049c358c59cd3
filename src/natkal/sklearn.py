"""scikit-learn estimators: `from natkal.sklearn import KalmanClassifier, KalmanCountRegressor, KalmanRegressor`."""

from natkal.integrations.sklearn_classifier import KalmanClassifier
from natkal.integrations.sklearn_regressors import KalmanCountRegressor, KalmanRegressor

__all__ = ["KalmanClassifier", "KalmanCountRegressor", "KalmanRegressor"]
