"""river estimators: `from natkal.river import KalmanClassifier, KalmanRegressor`."""

from natkal.frontends.river_estimators import KalmanClassifier, KalmanRegressor

__all__ = ["KalmanClassifier", "KalmanRegressor"]
