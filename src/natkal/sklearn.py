"""scikit-learn estimators: `from natkal.sklearn import KalmanClassifier, KalmanCountRegressor, KalmanRegressor`."""

from natkal.integrations.sklearn_estimators import KalmanClassifier, KalmanCountRegressor, KalmanRegressor

__all__ = ["KalmanClassifier", "KalmanCountRegressor", "KalmanRegressor"]
