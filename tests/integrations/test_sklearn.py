"""scikit-learn's own checks, the engine as oracle, and the tools around estimators."""

import warnings

import jax.numpy as jnp
import joblib
import numpy as np
import pytest

import natkal as nk
from natkal.integrations.machine import make_machine

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from natkal.sklearn import KalmanClassifier, KalmanCountRegressor, KalmanRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)) * [1.0, 2.0, 0.1, 30.0] + [0.0, 5.0, 0.0, -9.0]
SIGNAL = (X - X.mean(axis=0)) / X.std(axis=0) @ [1.0, -0.5, 0.0, 0.3]
Y = {
    KalmanRegressor: 3 * SIGNAL + 7 + 0.2 * RNG.normal(size=60),
    KalmanClassifier: np.where(SIGNAL > 0, "yes", "no"),
    KalmanCountRegressor: RNG.poisson(np.exp(SIGNAL)),
}
ESTIMATORS = list(Y)
DECLARED = {
    "check_sample_weight_equivalence_on_dense_data": "one pass in order: the rows' order matters, as for SGD",
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_check_estimator(estimator, record_property):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator(), expected_failed_checks=DECLARED, on_skip=None)
        counts = {status: sum(r["status"] == status for r in results) for status in ("passed", "xfail", "skipped")}
    record_property("checks", f"scikit-learn {estimator.__name__}: {counts}")
    assert counts["passed"] >= 55
    assert {r["check_name"] for r in results if r["status"] == "xfail"} <= set(DECLARED)


@pytest.mark.parametrize("estimator", [SGDClassifier, SGDRegressor])
def test_scikit_learns_own_sgd_fails_what_is_declared(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator(), on_fail=None, on_skip=None)
    assert set(DECLARED) <= {r["check_name"] for r in results if r["status"] == "failed"}


def test_fit_is_the_filter_on_standardised_rows():
    labels = (Y[KalmanClassifier] == "yes").astype(int)
    found = KalmanClassifier(prior_scale=2.0, fading=0.01).fit(X, labels)
    model = nk.static_model(
        lambda p, u: u @ p["w"] + p["b"], {"w": jnp.zeros((4, 1)), "b": jnp.zeros(1)}, nk.families.Bernoulli()
    )
    learner = nk.online(model, prior_cov={"w": 0.5, "b": 2.0}, rates=nk.fading(0.01))
    inputs = jnp.asarray((X - X.mean(axis=0)) / X.std(axis=0))
    state, _ = nk.run(learner, learner.init(model.params), inputs, jnp.asarray(labels))
    weights, bias = np.asarray(state.params["w"]), np.asarray(state.params["b"])
    expected = 1 / (1 + np.exp(-(np.asarray(inputs) @ weights + bias)[:, 0]))
    np.testing.assert_allclose(found.predict_proba(X)[:, 1], expected, rtol=1e-8)


def test_auto_is_the_bank_of_auto():
    labels = (Y[KalmanClassifier] == "yes").astype(int)
    found = KalmanClassifier(learner="auto").fit(X, labels)
    model = nk.static_model(
        lambda p, u: u @ p["w"] + p["b"], {"w": jnp.zeros((4, 1)), "b": jnp.zeros(1)}, nk.families.Bernoulli()
    )
    learner = nk.auto(model, budget=6, standardize=False)
    inputs = jnp.asarray((X - X.mean(axis=0)) / X.std(axis=0))
    state, _ = nk.run(learner, learner.init(model.params), inputs, jnp.asarray(labels))
    expected = [float(learner.predict(state, row).mean[0]) for row in inputs[:5]]
    np.testing.assert_allclose(found.predict_proba(X[:5])[:, 1], expected, rtol=1e-8)
    weights = np.r_[np.ones(40), np.zeros(20)]
    some = KalmanClassifier(learner="auto").partial_fit(X, labels, sample_weight=weights)
    np.testing.assert_allclose(
        some.state_, KalmanClassifier(learner="auto").partial_fit(X[:40], labels[:40]).state_, rtol=1e-12
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_chunks_do_not_matter(estimator):
    y = Y[estimator]
    whole = estimator().partial_fit(X, y)
    pieces = estimator()
    first = {"classes": ["no", "yes"]} if estimator is KalmanClassifier else {}
    for rows in (slice(0, 1), slice(1, 20), slice(20, 60)):
        pieces.partial_fit(X[rows], y[rows], **(first if rows.start == 0 else {}))
    np.testing.assert_array_equal(whole.state_, pieces.state_)
    assert pieces.n_samples_seen_ == 60


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_plain_arrays_are_only_glanced_at(estimator):
    y = Y[estimator]
    if estimator is KalmanClassifier:
        y = (y == "yes").astype(int)
    told = {"classes": [0, 1]} if estimator is KalmanClassifier else {}
    quick = estimator(standardize=False).partial_fit(X, y, **told).partial_fit(X, y)
    full = estimator(standardize=False).partial_fit(X.tolist(), y.tolist(), **told).partial_fit(X.tolist(), y.tolist())
    np.testing.assert_array_equal(quick.state_, full.state_)
    for wrong, match in ((np.where(X > 1, np.nan, X), "NaN"), (X[:, :3], "3 features"), (X[:0], "0 sample")):
        with pytest.raises(ValueError, match=match):
            quick.partial_fit(wrong, y[: len(wrong)])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_weight_zero_is_absence(estimator):
    y = Y[estimator]
    weights = np.r_[np.ones(40), np.zeros(20)]
    found = estimator().partial_fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(found.state_, estimator().partial_fit(X[:40], y[:40]).state_, rtol=1e-12)


def test_weight_two_is_twice_the_row():
    """Exactly so for the quadratic part of the step: close to it where noise is learned too."""
    single = KalmanRegressor(fading=0.0).fit(X, Y[KalmanRegressor], sample_weight=np.full(60, 2.0))
    double = KalmanRegressor(fading=0.0).fit(np.repeat(X, 2, axis=0), np.repeat(Y[KalmanRegressor], 2))
    assert np.abs(single.predict(X) - double.predict(X)).max() < 0.1


def test_spread_and_intervals():
    model = KalmanRegressor().fit(X, Y[KalmanRegressor])
    std = model.predict(X, return_std=True)[1]
    low, high = model.predict_interval(X, coverage=0.9).T
    np.testing.assert_allclose((high - low) / std, 2 * 1.6448536269514722)
    assert 0.8 <= np.mean((low <= Y[KalmanRegressor]) & (Y[KalmanRegressor] <= high)) <= 1
    far = model.predict(X + 100 * X.std(axis=0), return_std=True)[1]
    assert (far > std).all()
    counts = KalmanCountRegressor().fit(X, Y[KalmanCountRegressor])
    ends = counts.predict_interval(X)
    assert (ends == np.round(ends)).all()
    assert counts.score(X, Y[KalmanCountRegressor]) > 0.3


def test_frames_pipelines_search_and_joblib(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = KalmanRegressor().fit(frame, Y[KalmanRegressor])
    assert model.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"a": "z"}))
    pipeline = make_pipeline(StandardScaler(), KalmanClassifier())
    search = GridSearchCV(pipeline, {"kalmanclassifier__prior_scale": [0.1, 1.0]}, cv=2)
    before = make_machine.cache_info().misses
    search.fit(X, Y[KalmanClassifier])
    assert search.best_score_ > 0.8
    assert make_machine.cache_info().misses - before <= 1  # settings are data, not programs
    joblib.dump(search, tmp_path / "search.joblib")
    again = joblib.load(tmp_path / "search.joblib")
    np.testing.assert_array_equal(again.predict_proba(X), search.predict_proba(X))
    assert not hasattr(clone(model), "state_")


def test_polars_frames():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(dict(zip("abcd", X.T, strict=True)))
    model = KalmanRegressor().fit(frame, pl.Series(Y[KalmanRegressor]))
    assert model.feature_names_in_.tolist() == list("abcd")
    np.testing.assert_array_equal(model.predict(frame), KalmanRegressor().fit(X, Y[KalmanRegressor]).predict(X))


def test_hidden_layers_bend():
    inputs = RNG.uniform(-1, 1, size=(400, 2))
    labels = inputs[:, 0] * inputs[:, 1] > 0
    deep = KalmanClassifier((8,), random_state=0).fit(inputs, labels)
    assert deep.score(inputs, labels) > 0.85 > KalmanClassifier().fit(inputs, labels).score(inputs, labels)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: KalmanRegressor((0,)).fit(X, Y[KalmanRegressor]), "hidden_layer_sizes: must be a tuple of positive"),
        (lambda: KalmanRegressor(prior_scale=-1.0).fit(X, Y[KalmanRegressor]), "prior_scale: must be positive"),
        (lambda: KalmanRegressor(fading=1.0).fit(X, Y[KalmanRegressor]), r"fading: must lie in \[0, 1\)"),
        (lambda: KalmanCountRegressor().fit(X[:2], [1, -2]), r"a count cannot be negative, got -2.0 \(row 1\)"),
        (
            lambda: KalmanClassifier().partial_fit(X[:2], [0, 1]).partial_fit(X[:2], [1, 7]),
            r"7\S* is none of the classes \[0, 1\] \(row 1\)",
        ),
        (lambda: KalmanRegressor().fit(X, Y[KalmanRegressor]).predict_interval(X, 2.0), "coverage: must lie between"),
    ],
)
def test_complaints(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()
