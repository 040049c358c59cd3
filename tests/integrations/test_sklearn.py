"""scikit-learn's own checks, and that how a stream is cut into chunks changes nothing."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from natkal.sklearn import KalmanClassifier, KalmanCountRegressor, KalmanRegressor

SINGLE = {"learner": "single", "model": "linear"}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
REAL = X @ [1.0, -2.0, 0.5] + 3 + 0.1 * RNG.normal(size=120)
LABELS = np.where(X[:, 0] > X[:, 1], "yes", "no")


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [KalmanRegressor, KalmanClassifier, KalmanCountRegressor])
def test_check_estimator(estimator, record_property):
    results = check_estimator(estimator(**SINGLE), on_fail=None)
    failed = [result["check_name"] for result in results if result["status"] == "failed"]
    record_property("checks", f"scikit-learn {estimator.__name__}: {len(results)} checks")
    assert not failed


@pytest.mark.parametrize(("estimator", "targets"), [(KalmanRegressor, REAL), (KalmanClassifier, LABELS)])
def test_chunks_change_nothing(estimator, targets):
    whole, parts = estimator(**SINGLE), estimator(**SINGLE)
    classes = {"classes": np.unique(targets)} if estimator is KalmanClassifier else {}
    whole.partial_fit(X, targets, **classes)
    for first in range(0, 120, 17):
        parts.partial_fit(X[first : first + 17], targets[first : first + 17], **(classes if first == 0 else {}))
    ask = "predict_proba" if estimator is KalmanClassifier else "predict"
    np.testing.assert_allclose(getattr(whole, ask)(X[:9]), getattr(parts, ask)(X[:9]), rtol=1e-9)


def test_predictions_in_the_users_units():
    model = clone(KalmanRegressor(**SINGLE)).fit(X, 100 * REAL)
    mean, spread = model.predict(X, return_std=True)
    assert np.abs(mean - 100 * REAL).mean() < 30
    assert (spread > 0).all()
    limits = model.predict_interval(X, coverage=0.9)
    inside = (limits[:, 0] <= 100 * REAL) & (limits[:, 1] >= 100 * REAL)
    assert 0.8 < inside.mean() <= 1.0


def test_labels_keep_their_names():
    model = KalmanClassifier(**SINGLE).fit(X, LABELS)
    assert model.predict([[2.0, -2.0, 0.0], [-2.0, 2.0, 0.0]]).tolist() == ["yes", "no"]
    assert model.predict_proba(X[:3]).shape == (3, 2)
