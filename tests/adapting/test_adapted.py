"""A fitted estimator of scikit-learn's that goes on learning."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, LogisticRegression

from natkal.adapting.outer import OuterMixture
from natkal.sklearn import adapted

LN2 = float(np.log(2))


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(*[st.sampled_from([-np.inf, -700.0, -30.0, -2.0, -0.1, 0.0, 3.0])] * 3), max_size=60),
    seed=st.integers(0, 10_000),
)
def test_never_more_than_ln_2_behind_the_first(rows, seed):
    """On a thousand streams made against it, cut anywhere; the weights always add up to 1."""
    told = np.reshape(np.array(rows, float), (-1, 3))
    told = told + np.random.default_rng(seed).normal(size=told.shape)
    mixture = OuterMixture(3)
    cut = len(told) // 2
    log_prob = np.concatenate([mixture.learn(told[:cut])[1], mixture.learn(told[cut:])[1]])
    first = np.cumsum(told[:, 0])
    finite = np.isfinite(first)
    assert (np.cumsum(log_prob)[finite] >= first[finite] - LN2 - 1e-9 * np.abs(first[finite])).all()
    assert mixture.weights.sum() == pytest.approx(1.0)


def test_a_classifier_whose_boundary_has_turned():
    """Beside the fitted model it is far better, and the first rows cost little; probabilities sum to 1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 2))
    y = np.where(X[:, 0] > 0, "up", "down")
    fitted = LogisticRegression().fit(X[:300], y[:300])
    turned = np.where(X[300:, 0] < 0.3, "up", "down")
    model = adapted(fitted, learner="single")
    first, second = np.split(np.arange(900), 2)
    model.partial_fit(X[300:][first], turned[first])
    own = fitted.predict_proba(X[300:][second])[np.arange(450), (turned[second] == "up").astype(int)]
    model.partial_fit(X[300:][second], turned[second])
    assert model.log_loss_ < 0.2 * -np.log(own).mean()
    probabilities = model.predict_proba(X[:5])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert sum(model.weights_.values()) == pytest.approx(1.0)
    assert model.predict(X[:5]).shape == (5,)


def test_an_estimator_that_is_right_keeps_its_weight():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=500)
    model = adapted(LinearRegression().fit(X[:250], y[:250]), learner="single").partial_fit(X[250:], y[250:])
    mean, deviation = model.predict(X[:50], return_std=True)
    assert np.abs(mean - y[:50]).mean() < 0.1
    assert (deviation > 0.05).all()
    assert model.weights_["estimator"] + model.weights_["corrected"] > 0.5


def test_a_label_that_the_estimator_does_not_know_is_refused():
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = adapted(LogisticRegression().fit(X, X[:, 0] > 0), learner="single")
    with pytest.raises(ValueError, match="not among the classes"):
        model.partial_fit(X, np.full(60, "new"))
