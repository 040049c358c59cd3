"""One step against the equations of DESIGN in NumPy, and the loop against the scan."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk

CLASSES, FEATURES, STEPS = 3, 4, 40
TEXTBOOK = nk.step_control(cap=None)


def network():
    params = nk.mlp_params(jax.random.key(0), (FEATURES, 5, CLASSES))
    model = nk.static_model(nk.mlp_apply, params, nk.families.Categorical(CLASSES))
    rng = np.random.default_rng(0)
    return model, params, rng.normal(size=(STEPS, FEATURES)), rng.integers(CLASSES, size=STEPS)


@pytest.mark.float64
@pytest.mark.parametrize("decay", [None, 0.02])
def test_step_is_the_online_natural_gradient(decay) -> None:
    """Def. 1 with gamma = eta and gamma != eta, J formed and solved literally."""
    model, params, inputs, targets = network()
    eta = 0.05
    gamma = eta if decay is None else decay
    learner = nk.online(model, prior_cov=0.5, rates=nk.learning_rate(eta, decay), step_control=TEXTBOOK)
    state, _ = nk.run(learner, learner.init(params), inputs, targets)

    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])
    fisher = eta / 0.5 * np.eye(len(flat))

    @jax.jit
    def pieces(flat, u, y):
        def loss(flat, y):
            return -model.outputs.log_prob(model.natural(model.unravel(flat), u), y)

        mean = jax.nn.softmax(model.raw(model.unravel(flat), u))
        gradients = jax.vmap(lambda y: jax.grad(loss)(flat, y))(jnp.arange(CLASSES))
        return jax.grad(loss)(flat, y), gradients.T * mean[None, :] @ gradients

    for u, y in zip(inputs, targets, strict=True):
        gradient, new_fisher = pieces(flat, u, y)
        fisher = (1 - gamma) * fisher + gamma * new_fisher
        flat = flat - eta * np.linalg.solve(fisher, gradient)
    got = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.params)])
    np.testing.assert_allclose(got, flat, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(learner.covariance(state), eta * np.linalg.inv(fisher), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("fisher", [nk.exact(), nk.sampled(2), nk.outer_product()], ids=["exact", "sampled", "outer"])
def test_run_equals_a_loop_of_steps(fisher) -> None:
    """To rounding: a small scan is compiled as one function, which may sum in another order."""
    model, params, inputs, targets = network()
    learner = nk.online(model, prior_cov=0.3, rates=nk.fading(0.01), fisher=fisher)
    start = learner.init(params)
    scanned, infos = nk.run(learner, start, inputs, targets)
    state, log_probs = start, []
    for u, y in zip(inputs, targets, strict=True):
        state, info = learner.step(state, u, y)
        log_probs.append(info.log_prob)
    close = partial(np.testing.assert_allclose, rtol=1e3 * jnp.finfo(infos.log_prob.dtype).eps, atol=1e-6)
    close(infos.log_prob, np.asarray(log_probs))
    plain = lambda state: jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))  # noqa: E731
    for left, right in zip(plain(scanned), plain(state), strict=True):
        close(left, right)
    assert int(state.steps) == STEPS


def test_run_traces_the_model_once() -> None:
    traces = []

    def apply(w, u):
        traces.append(1)
        return w @ u

    model = nk.static_model(apply, jnp.zeros(3), nk.families.Gaussian(1.0))
    learner = nk.online(model)
    inputs, targets = np.ones((20, 3)), np.ones(20)
    state, _ = nk.run(learner, learner.init(jnp.zeros(3)), inputs, targets)
    once = len(traces)
    nk.run(learner, state, inputs, targets)
    assert once == 1
    assert len(traces) == once


def test_prediction_equals_the_one_made_inside_the_step(rtol: float) -> None:
    model, params, inputs, targets = network()
    learner = nk.online(model, prior_cov=0.3, rates=nk.fading(0.01))
    state, _ = nk.run(learner, learner.init(params), inputs, targets)
    before = learner.predict(state, inputs[0])
    _, info = learner.step(state, inputs[0], targets[0])
    for alone, inside in zip(*map(jax.tree.leaves, (before, info.prediction)), strict=True):
        np.testing.assert_allclose(alone, inside, rtol=100 * rtol, atol=100 * rtol)


def test_total_variance_of_a_gaussian_adds_noise_and_parameter_variance(rtol: float) -> None:
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(2), nk.families.Gaussian(0.25))
    learner = nk.online(model, prior_cov=np.array([[2.0, 0.5], [0.5, 1.0]]))
    u = np.array([1.0, 2.0])
    prediction = learner.predict(learner.init(jnp.zeros(2)), u)
    np.testing.assert_allclose(prediction.cov, [[0.25 + 8.0]], rtol=rtol)
    np.testing.assert_allclose(prediction.natural_cov, [[8.0 / 0.25**2]], rtol=rtol)


def test_k_logits_learn_what_k_minus_one_log_odds_learn(rtol: float) -> None:
    """The same network output read as k logits, or as k - 1 log-odds against the last class."""
    _, params, inputs, targets = network()
    results = []
    for family, apply in [
        (nk.families.Categorical(CLASSES), nk.mlp_apply),
        (nk.families.Categorical(CLASSES, minimal=False), nk.mlp_apply),
        (nk.families.Categorical(CLASSES), lambda p, u: (z := nk.mlp_apply(p, u))[:-1] - z[-1:]),
    ]:
        learner = nk.online(nk.static_model(apply, params, family), prior_cov=0.3)
        state, info = nk.run(learner, learner.init(params), inputs, targets)
        results.append((np.asarray(info.log_prob), np.asarray(learner.covariance(state))))
    for log_prob, cov in results[1:]:
        np.testing.assert_allclose(log_prob, results[0][0], rtol=100 * rtol, atol=100 * rtol)
        np.testing.assert_allclose(cov, results[0][1], rtol=100 * rtol, atol=100 * rtol)


def test_counter_is_exact_past_every_float_and_int_limit() -> None:
    from natkal.engine import counter

    for start in (2**24, 2**31 - 1, 2**32 - 1, 2**40):
        before = counter.Counter(high=jnp.uint32(start >> 32), low=jnp.uint32(start & 0xFFFFFFFF))
        assert int(counter.increment(before)) == start + 1
