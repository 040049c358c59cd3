"""Trajectory averaging, ensembles and sigma points, each against what it must equal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import natkal as nk

rng = np.random.default_rng(0)
INPUTS, TARGETS = rng.normal(size=(25, 3)), rng.normal(size=25)
model = nk.static_model(lambda w, u: w @ u, jnp.zeros(3), nk.families.Gaussian(0.5))
learner = nk.online(model, rates=nk.fading(0.05))


def test_the_average_is_the_mean_of_the_trajectory(rtol: float) -> None:
    wrapped = nk.averaged(learner)
    state, _ = nk.run(wrapped, wrapped.init(jnp.zeros(3)), INPUTS, TARGETS)
    inner, trajectory = learner.init(jnp.zeros(3)), []
    for u, y in zip(INPUTS, TARGETS, strict=True):
        inner, _ = learner.step(inner, u, y)
        trajectory.append(np.asarray(inner.params))
    np.testing.assert_allclose(state.params, np.mean(trajectory, axis=0), rtol=100 * rtol, atol=10 * rtol)
    np.testing.assert_allclose(state.inner.params, inner.params, rtol=10 * rtol, atol=rtol)
    prediction = wrapped.predict(state, INPUTS[0])
    np.testing.assert_allclose(prediction.mean[0], np.mean(trajectory, axis=0) @ INPUTS[0], rtol=1e3 * rtol, atol=rtol)


def test_members_are_the_learners_they_would_be_alone(rtol: float) -> None:
    """And the weighted mixture's log-probabilities multiply to the evidence of the mixture of whole trajectories."""
    wrapped = nk.ensemble(learner, 4, weighted=True)
    start = wrapped.init(jnp.zeros(3), jax.random.key(1))
    state, info = nk.run(wrapped, start, INPUTS, TARGETS)
    totals = []
    for index in range(4):
        alone = learner.init(start.members[0].params[index])
        end, alone_info = nk.run(learner, alone, INPUTS, TARGETS)
        np.testing.assert_allclose(state.members[0].params[index], end.params, rtol=1e3 * rtol, atol=100 * rtol)
        law = scipy.stats.norm(alone_info.prediction.mean[:, 0], np.sqrt(alone_info.prediction.cov[:, 0, 0]))
        totals.append(law.logpdf(TARGETS).sum())
    expected = np.logaddexp.reduce(totals) - np.log(4)
    np.testing.assert_allclose(float(info.log_prob.sum()), expected, rtol=100 * rtol)
    np.testing.assert_allclose(jnp.exp(state.log_weights).sum(), 1.0, rtol=100 * rtol)


def test_sigma_points_are_exact_for_affine_models_and_see_past_a_plateau(rtol: float) -> None:
    seen = nk.unscented(model, sd=0.3)
    plain = model.linearize(jnp.ones(3), (), INPUTS[0])
    sigma = seen.linearize(jnp.ones(3), (), INPUTS[0])
    np.testing.assert_allclose(sigma.raw, plain.raw, rtol=100 * rtol)
    np.testing.assert_allclose(sigma.pullback(jnp.ones((1, 1))), plain.pullback(jnp.ones((1, 1))), rtol=1e3 * rtol)
    square = nk.static_model(lambda w, u: w * w * u, jnp.zeros(()), nk.families.Gaussian(1.0))
    around = nk.unscented(square, sd=0.5).linearize(jnp.asarray(2.0), (), 1.0)
    np.testing.assert_allclose(around.raw, [4 + 0.25], rtol=100 * rtol)  # E[w^2] = mean^2 + variance
    dead = nk.static_model(lambda w, u: jnp.maximum(w, 0.0) * u, jnp.zeros(()), nk.families.Gaussian(1.0))
    slope = nk.unscented(dead, sd=0.5).linearize(jnp.asarray(-0.1), (), 1.0).pullback(jnp.ones((1, 1)))
    np.testing.assert_allclose(slope, [[0.4]], rtol=100 * rtol)  # (0.4 - 0) / (2 * 0.5)


@pytest.mark.float64
def test_distance_is_zero_for_dense_itself_and_counts_nats() -> None:
    params = nk.mlp_params(jax.random.key(0), (3, 2, 2))
    network = nk.static_model(nk.mlp_apply, params, nk.families.Categorical(2, minimal=False))
    labels = (INPUTS[:, 0] > 0).astype(int)
    same = nk.distance(nk.online(network, curvature=nk.blocks(by=lambda path: 0)), INPUTS, labels)
    np.testing.assert_allclose(same.kl, 0, atol=1e-9)
    np.testing.assert_allclose(same.cosine, 1, atol=1e-9)
    far = nk.distance(nk.online(network, curvature=nk.diagonal()), INPUTS, labels)
    assert float(far.kl) > 0.01
    assert 0 < float(far.cosine.min()) < 0.999


def test_plan_counts_bytes_and_refuses_before_allocating(rtol: float) -> None:
    sizes = (784, 100, 10)
    shapes = jax.eval_shape(lambda: nk.mlp_params(jax.random.key(0), sizes))
    big = nk.static_model(nk.mlp_apply, shapes, nk.families.Categorical(10, minimal=False))
    item = 8 if rtol < 1e-6 else 4
    result = nk.plan(big, memory=4 * 10**9)
    costs = {cost.name: cost for cost in result.costs}
    assert result.parameters == 79_510
    assert 0.5 < costs["dense"].state_bytes / (79_510**2 * item) < 1.01  # a triangle or a matrix, and what waits
    assert costs["dense"].kernel is not None
    assert not costs["dense"].fits
    assert costs['blocks(by="neuron")'].state_bytes == (100 * 785**2 + 10 * 101**2 + 1) * item  # one for the bound
    assert costs["kronecker()"].state_bytes == (785**2 + 100**2 + 101**2 + 10**2 + 5) * item
    assert costs["diagonal()"].state_bytes == 79_511 * item
    assert result.recommended == "kronecker()"
    wide = jax.eval_shape(lambda: nk.mlp_params(jax.random.key(0), (1000, 2000, 10)))
    with pytest.raises(ValueError, match=r"(?s)curvature: Dense needs .*kronecker\(\).*take this"):
        nk.online(nk.static_model(nk.mlp_apply, wide, nk.families.Categorical(10, minimal=False)))
    small = nk.static_model(lambda w, u: w @ u, jnp.zeros(3), nk.families.Gaussian(1.0))
    timed = nk.plan(small, inputs=jnp.ones(3), target=1.0)
    assert timed.recommended == "dense"
    assert all(cost.seconds is not None and cost.seconds > 0 for cost in timed.costs)
