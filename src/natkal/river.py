"""river estimators: `from natkal.river import KalmanClassifier, KalmanRegressor`."""

from natkal.integrations.river_estimators import KalmanClassifier, KalmanRegressor

__all__ = ["KalmanClassifier", "KalmanRegressor"]
