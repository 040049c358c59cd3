"""scikit-learn estimators: `from natkal.sklearn import KalmanBandit, KalmanClassifier, KalmanRegressor, ..`."""

from natkal.integrations.sklearn_adapted import adapted
from natkal.integrations.sklearn_bandit import KalmanBandit
from natkal.integrations.sklearn_estimators import KalmanClassifier, KalmanCountRegressor, KalmanRegressor

__all__ = ["KalmanBandit", "KalmanClassifier", "KalmanCountRegressor", "KalmanRegressor", "adapted"]
