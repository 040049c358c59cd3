"""Steps that are safe by construction: missing and bad values, broad priors, poor excitation, outliers, float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import natkal as nk
from natkal.models import ravel
from natkal.stream.run import scan

STARVED = 20_000
linear = nk.static_model(lambda w, u: w @ u, jnp.zeros(2), nk.families.Gaussian(1.0))


def leaves(state):
    return jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))


@pytest.mark.parametrize("curvature", [nk.dense(), nk.square_root()], ids=lambda c: type(c).__name__)
def test_a_nan_target_is_predicted_and_not_learned_from(curvature) -> None:
    learner = nk.online(linear, rates=nk.fading(0.1), curvature=curvature)
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(20, 2)), rng.normal(size=20)
    with_gaps = targets.copy()
    with_gaps[[3, 4, 11]] = np.nan
    known = ~np.isnan(with_gaps)
    start = learner.init(jnp.zeros(2))
    state, info = nk.run(learner, start, inputs, with_gaps)
    expected, _ = nk.run(learner, start, inputs[known], targets[known])
    np.testing.assert_array_equal(info.observed, known)
    assert int(state.steps) == known.sum()
    assert np.isfinite(info.log_prob).all()
    for got, wanted in zip(
        leaves(state._replace(key=start.key)), leaves(expected._replace(key=start.key)), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


def test_a_missing_component_is_left_out_exactly(rtol: float) -> None:
    """A vector Gaussian with a gap is the Gaussian of the other components; a product with a gap is the other parts."""
    cov = np.array([[1.0, 0.6, 0.2], [0.6, 2.0, -0.3], [0.2, -0.3, 0.5]])
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)))
    full = nk.static_model(lambda w, u: w @ u, weights, nk.families.Gaussian(cov))
    part = nk.static_model(lambda w, u: (w @ u)[jnp.array([0, 2])], weights, nk.families.Gaussian(cov[::2, ::2]))
    u = np.array([0.7, -1.1])

    def learned(model, target):
        learner = nk.online(model)
        state, info = learner.step(learner.init(weights), u, np.array(target))
        return ravel(state.params), learner.covariance(state), info.log_prob

    for got, wanted in zip(learned(full, [1.0, np.nan, -2.0]), learned(part, [1.0, -2.0]), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=10 * rtol, atol=10 * rtol)

    # The same law in natural coordinates nu = cov^-1 m: the step of m = cov nu is that of the marginal, too.
    spoken = nk.static_model(lambda w, u: jnp.linalg.solve(cov, w @ u), weights, full.family, output="natural")
    for got, wanted in zip(learned(spoken, [1.0, np.nan, -2.0]), learned(part, [1.0, -2.0]), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=10 * rtol, atol=10 * rtol)

    product = nk.families.Product(nk.families.Poisson(), nk.families.Bernoulli())
    mixed = nk.static_model(lambda w, u: w[:2] @ u, weights, product)
    alone = nk.static_model(lambda w, u: w[1] @ u, weights, nk.families.Bernoulli())
    left, right = nk.online(mixed), nk.online(alone)
    state, info = left.step(left.init(weights), u, np.array([np.nan, 1.0]))
    other, wanted = right.step(right.init(weights), u, 1)
    np.testing.assert_allclose(state.params, other.params, rtol=10 * rtol)
    np.testing.assert_allclose(info.log_prob, wanted.log_prob, rtol=10 * rtol)


def test_a_step_that_is_not_finite_leaves_the_state_untouched() -> None:
    """The model itself gives NaN for one input: no check can see it coming."""
    model = nk.static_model(lambda w, u: w @ u / (u[0] - 1), jnp.zeros(2), nk.families.Gaussian(1.0))
    learner = nk.online(model)
    start, _ = learner.step(learner.init(jnp.zeros(2)), np.array([0.0, 2.0]), 1.0)
    state, info = learner.step(start, np.array([1.0, 0.0]), 1.0)
    assert not bool(info.accepted)
    for got, wanted in zip(leaves(state._replace(key=start.key)), leaves(start), strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert bool(learner.step(state, np.array([0.0, 1.0]), 1.0)[1].accepted)


@pytest.mark.parametrize("relinearize", [1, 3])
def test_relinearising_a_linear_model_changes_nothing(relinearize: int, rtol: float) -> None:
    """Each observation counts once, however often it is looked at."""
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(10, 2)), rng.normal(size=10)
    states = []
    for count in (0, relinearize):
        learner = nk.online(linear, prior_cov=3.0, step_control=nk.step_control(relinearize=count))
        states.append(nk.run(learner, learner.init(jnp.zeros(2)), inputs, targets)[0])
    np.testing.assert_allclose(states[1].params, states[0].params, rtol=100 * rtol)
    np.testing.assert_allclose(states[1].curvature.cov, states[0].curvature.cov, rtol=100 * rtol, atol=rtol)


def test_an_iterated_step_still_reports_what_was_expected_before_it(rtol: float) -> None:
    """The linearisation points of an iterated filter have seen y; its prediction and log-probability have not."""
    model = nk.static_model(lambda w, u: jnp.tanh(w @ u), jnp.zeros(2), nk.families.Bernoulli())
    u = np.array([0.5, -1.0])
    infos = []
    for count in (0, 2):
        learner = nk.online(model, prior_cov=4.0, step_control=nk.step_control(relinearize=count))
        infos.append(learner.step(learner.init(jnp.array([0.3, 0.1])), u, 1)[1])
    for got, wanted in zip(jax.tree.leaves(infos[1]), jax.tree.leaves(infos[0]), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=rtol)


@pytest.mark.float64
def test_iterated_and_exact_likelihood_steps_reach_the_mode() -> None:
    """One logistic observation under a Gaussian prior: both find the maximum of log p(y) + log prior."""
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(2), nk.families.Bernoulli())
    u = jnp.array([1.0, -2.0])
    start = jnp.array([-1.0, 0.5])

    def slope(x):
        """Derivative of log p + log prior along u, where the mode lies: theta = start + 4 u x."""
        return jax.nn.sigmoid(-(start @ u + 4.0 * (u @ u) * x)) - x

    x = scipy.optimize.brentq(slope, 0.0, 1.0, xtol=1e-15)
    mode = start + 4.0 * u * x
    for control in (nk.step_control(cap=None, newton=30), nk.step_control(cap=None, relinearize=60)):
        learner = nk.online(model, prior_cov=4.0, step_control=control)
        state, _ = learner.step(learner.init(start), u, 1)
        np.testing.assert_allclose(state.params, mode, rtol=1e-8)


def test_no_observation_moves_its_own_logit_further_than_the_cap() -> None:
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(2), nk.families.Bernoulli())
    learner = nk.online(model, prior_cov=1e4, step_control=nk.step_control(cap=1.5))
    u = np.array([3.0, 1.0])
    start = jnp.array([-5.0, 0.0])
    state, _ = learner.step(learner.init(start), u, 1)
    moved = float((state.params - start) @ u)
    assert 0 < moved <= 1.5 * (1 + 1e-5)


def test_logistic_regression_from_a_broad_prior() -> None:
    """Prior variance 1e4, 20 seeds, 1,000 observations: mean log-likelihood above -0.45, largest logit below 50."""

    def one(key):
        key_w, key_u, key_y = jax.random.split(key, 3)
        truth = jax.random.normal(key_w, (5,)) * 1.5
        inputs = jax.random.normal(key_u, (1000, 5))
        targets = (jax.random.uniform(key_y, (1000,)) < jax.nn.sigmoid(inputs @ truth)).astype(int)
        _, info = scan(learner, "all", learner.init(jnp.zeros(5)), inputs, targets)
        best = jnp.mean(jax.nn.log_sigmoid(jnp.where(targets == 1, 1, -1) * (inputs @ truth)))
        return jnp.mean(info.log_prob), jnp.max(jnp.abs(info.prediction.natural)), best

    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(5), nk.families.Bernoulli())
    learner = nk.online(model, prior_cov=1e4)
    mean, largest, best = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 20))
    assert float(jnp.mean(mean)) > -0.45
    assert float(jnp.max(largest)) < 50
    assert float(jnp.mean(best)) > float(jnp.mean(mean)) - 0.01


def test_a_first_count_of_a_million_does_not_overflow() -> None:
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(2), nk.families.Poisson())
    learner = nk.online(model, prior_cov=100.0)
    inputs = np.tile([1.0, 0.5], (60, 1))
    targets = np.array([1_000_000] + [3] * 59)
    state, info = nk.run(learner, learner.init(jnp.zeros(2)), inputs, targets)
    assert bool(info.accepted.all())
    assert np.isfinite(info.log_prob).all()
    assert abs(float(state.params @ inputs[0])) < 20


@pytest.mark.parametrize("curvature", [nk.dense(), nk.square_root()], ids=lambda c: type(c).__name__)
def test_long_without_excitation(curvature) -> None:
    """Fading 0.01, kept prior: the variance of what is never seen stays within 2x of the prior's (`make soak`: 1e6)."""
    size = 10
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(size), nk.families.Gaussian(1.0))
    learner = nk.online(model, rates=nk.fading(0.01), prior_weight=1.0, curvature=curvature)
    u, y = jnp.zeros(size).at[0].set(1.0), jnp.ones(())

    @jax.jit
    def starve(state):
        return jax.lax.fori_loop(0, STARVED, lambda _, state: learner.step(state, u, y)[0], state)

    state = starve(learner.init(jnp.zeros(size)))
    variances = np.diag(learner.covariance(state))
    assert int(state.steps) == STARVED
    assert (variances[1:] <= 2).all()
    assert (variances[1:] >= 0.5).all()


@pytest.mark.parametrize("jump", [False, True], ids=["outliers", "jump"])
def test_robust_learning(jump: bool) -> None:
    """1 percent of targets off by 1e6 sd cost at most 1.2x; a jump of 20 sd is followed within 5 / fading steps."""
    fading, steps = 0.02, 1500
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(steps, 3))
    truth = np.array([1.0, -2.0, 0.5])
    clean = inputs @ truth + 0.3 * rng.normal(size=steps)
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(3), nk.families.Gaussian(0.09))
    robust = nk.online(model, prior_cov=10.0, rates=nk.fading(fading), robust=nk.robust())

    def error(learner, targets, wanted, last):
        _, info = nk.run(learner, learner.init(jnp.zeros(3)), inputs[: len(targets)], targets)
        return float(np.sqrt(np.mean((np.asarray(info.prediction.mean)[-last:, 0] - wanted[-last:]) ** 2)))

    if jump:
        moved = np.where(np.arange(steps) < 1000, inputs @ truth, inputs @ (truth + np.array([0.0, 6.0, 0.0])))
        targets = moved + 0.3 * rng.normal(size=steps)
        assert error(robust, targets[: 1000 + int(5 / fading)], moved[: 1000 + int(5 / fading)], 20) < 0.15
    else:
        dirty = np.where(rng.uniform(size=steps) < 0.01, clean + 3e5 * rng.choice([-1, 1], size=steps), clean)
        plain = nk.online(model, prior_cov=10.0, rates=nk.fading(fading))
        assert error(robust, dirty, inputs @ truth, 1400) < 1.2 * error(plain, clean, inputs @ truth, 1400)


def test_float32_square_root_stays_close_to_float64() -> None:
    """p = 10, 1e5 steps, condition 1 to 1e5, prior 1e2 to 1e8: finite, within 0.1 sd of the exact posterior."""
    size, steps = 10, 100_000
    conditions, priors = np.meshgrid([1.0, 1e2, 1e5], [1e2, 1e5, 1e8])
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(size, jnp.float32), nk.families.Gaussian(1.0))
    truth = np.random.default_rng(0).normal(size=size).astype(np.float32)
    inputs = np.random.default_rng(1).normal(size=(steps, size)).astype(np.float32)
    noise = np.random.default_rng(2).normal(size=steps).astype(np.float32)

    def scaled(condition):
        return jnp.asarray(inputs) * jnp.logspace(0, -jnp.log10(condition), size, dtype=jnp.float32)[None, :]

    def one(condition, prior):
        learner = nk.online(model, prior_cov=prior, curvature=nk.square_root())
        seen = scaled(condition)
        body = lambda state, row: (learner.step(state, *row)[0], None)  # noqa: E731
        state = learner.init(jnp.zeros(size, jnp.float32))
        return jax.lax.scan(body, state, (seen, seen @ truth + jnp.asarray(noise)))[0].params

    params = jax.jit(jax.vmap(one))(jnp.float32(conditions.ravel()), jnp.float32(priors.ravel()))
    assert np.isfinite(params).all()
    for got, condition, prior in zip(np.asarray(params, np.float64), conditions.ravel(), priors.ravel(), strict=True):
        seen = np.asarray(scaled(np.float32(condition)), np.float64)
        targets = np.asarray(jnp.asarray(seen, jnp.float32) @ truth + noise, np.float64)
        precision = seen.T @ seen + np.eye(size) / prior
        mean = np.linalg.solve(precision, seen.T @ targets)
        deviation = np.sqrt(np.diag(np.linalg.inv(precision)))
        assert (np.abs(got - mean) / deviation).max() < 0.1, (condition, prior)


def test_precision_that_would_be_lost_is_refused() -> None:
    with pytest.raises(ValueError, match=r"fading: 1e-09 has no effect in float32"):
        nk.online(linear, rates=nk.fading(1e-9)).init(jnp.zeros(2, jnp.float32))
    if not jax.config.read("jax_enable_x64"):
        with pytest.raises(ValueError, match=r"params: .*float64"):
            nk.online(linear).init(np.zeros(2, np.float64))
        with pytest.raises(ValueError, match="information: needs float64"):
            nk.online(linear, curvature=nk.information()).init(jnp.zeros(2))


@pytest.mark.float64
def test_switching_from_a_diffuse_start_to_the_square_root() -> None:
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(30, 2)), rng.normal(size=30)
    diffuse = nk.online(linear, prior_cov=None, curvature=nk.information())
    cheap = nk.online(linear, curvature=nk.square_root())
    state, _ = nk.run(diffuse, diffuse.init(jnp.zeros(2)), inputs[:5], targets[:5])
    state, _ = nk.run(cheap, nk.switch(state, diffuse, cheap), inputs[5:], targets[5:])
    np.testing.assert_allclose(state.params, np.linalg.lstsq(inputs, targets)[0], rtol=1e-10)
    np.testing.assert_allclose(cheap.covariance(state), np.linalg.inv(inputs.T @ inputs), rtol=1e-9, atol=1e-12)


def test_an_input_that_is_never_there_does_not_end_the_learning() -> None:
    """Forgetting blows up what is known of its weight at every step; that stops before it overflows."""
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(3), nk.families.Gaussian(1.0))
    learner = nk.online(model, prior_cov=1.0, rates=nk.fading(0.05))
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.normal(size=(20_000, 3)) * np.array([1.0, 1.0, 0.0]))
    state, infos = nk.run(learner, learner.init(jnp.zeros(3)), inputs, inputs @ jnp.array([1.0, -2.0, 0.0]))
    assert bool(infos.accepted.all())
    np.testing.assert_allclose(state.params, [1.0, -2.0, 0.0], atol=1e-3)
    variances = np.diagonal(learner.covariance(state))
    assert variances[:2].max() < 0.3
    assert 1e3 < variances[2] < 1e9
    # and it is learned as if new once it comes
    late, infos = nk.run(learner, state, jnp.ones((50, 3)), jnp.full(50, 4.0))
    assert bool(infos.accepted.all())
    np.testing.assert_allclose(late.params.sum(), 4.0, atol=1e-2)
