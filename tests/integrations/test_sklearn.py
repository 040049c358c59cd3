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
EXPECTED_TO_FAIL = {
    "check_sample_weight_equivalence_on_dense_data": "shuffles the rows; what is learned in one pass depends on order"
}


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [KalmanRegressor, KalmanClassifier, KalmanCountRegressor])
def test_check_estimator(estimator, record_property):
    results = check_estimator(estimator(**SINGLE), expected_failed_checks=EXPECTED_TO_FAIL, on_fail=None, on_skip=None)
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


def test_rows_sorted_by_their_class_are_learned_as_in_any_order():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(400, 3))
    drawn = rng.uniform(size=400) < 1 / (1 + np.exp(-inputs[:, 0]))
    order = np.argsort(drawn, kind="stable")
    fits = [KalmanClassifier(**SINGLE, n_iter=1).fit(inputs[rows], drawn[rows]) for rows in (order, np.arange(400))]
    apart = np.abs(fits[0].coef_ - fits[1].coef_) / fits[1].coef_std_
    assert apart.max() < 0.3
    np.testing.assert_allclose(fits[0].coef_std_, fits[1].coef_std_, rtol=0.05)


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


def test_coefficients_are_those_of_least_squares():
    """No row is forgotten, and three passes of a third of the weight are as certain as one: OLS, its errors too."""
    model = KalmanRegressor(**SINGLE, prior_scale=1e4).fit(X, REAL)
    design = np.column_stack([X, np.ones(len(X))])
    expected, squares, *_ = np.linalg.lstsq(design, REAL, rcond=None)
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * squares[0] / (len(X) - 4))
    np.testing.assert_allclose(model.coef_, expected[:3], atol=0.2 * errors[:3].min())
    np.testing.assert_allclose(model.intercept_, expected[3], atol=0.2 * errors[3])
    np.testing.assert_allclose([*model.coef_std_, model.intercept_std_], errors, rtol=0.15)
    assert model.n_iter_ == 3


def test_the_order_of_the_rows_of_a_table_hardly_matters():
    order = np.argsort(REAL)
    model, other = (KalmanRegressor(**SINGLE).fit(X[rows], REAL[rows]) for rows in (slice(None), order))
    assert np.abs(model.predict(X) - other.predict(X)).max() < 0.02 * REAL.std()


def test_a_frame_of_mixed_columns_with_missing_values():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "up", "down"), "c": X[:, 2]})
    frame.loc[::7, "a"] = np.nan
    frame["b"] = frame["b"].astype("category")
    model = KalmanRegressor(**SINGLE).fit(frame, 3.0 * (X[:, 1] > 0) + 0.01 * X[:, 2])
    assert np.abs(model.predict(frame) - 3.0 * (X[:, 1] > 0)).mean() < 0.3
