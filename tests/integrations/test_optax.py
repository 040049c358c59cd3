"""The transformation's steps are the filter's, in a chain, on any kind of parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk

optax = pytest.importorskip("optax")
from natkal.optax import natural_gradient, observe  # noqa: E402

INPUTS = jax.random.normal(jax.random.key(0), (8, 2))
TARGETS = jnp.array([0, 2, 1, 1, 0, 2, 2, 0])
PARAMS = {"w": 0.1 * jnp.ones((2, 3)), "b": jnp.zeros(3)}
MODEL = nk.static_model(lambda p, u: jnp.tanh(u) @ p["w"] + p["b"], PARAMS, nk.families.Categorical(3))


look = jax.jit(observe, static_argnums=0)


def loop(optimizer, update, batches):
    """The training loop of an optax user."""
    params, state = PARAMS, optimizer.init(PARAMS)
    for inputs, targets in batches:
        params, state = update(params, state, inputs, targets)
    return params


@pytest.mark.parametrize("size", [1, 4])
def test_the_loop_is_the_filter(size, rtol):
    """From a broad prior, so that the cap is at work; memory fades."""
    optimizer = optax.chain(natural_gradient(30.0, rates=nk.fading(0.05)), optax.scale(1.0))

    @jax.jit
    def update(params, state, inputs, targets):
        seen = observe(MODEL, params, inputs, targets)
        updates, state = optimizer.update(seen.gradients, state, params, **seen.extra)
        return optax.apply_updates(params, updates), state

    found = loop(optimizer, update, zip(INPUTS.reshape(-1, size, 2), TARGETS.reshape(-1, size), strict=True))
    learner = nk.online(MODEL, prior_cov=30.0, rates=nk.fading(0.05))
    expected = nk.run(learner, learner.init(PARAMS), INPUTS, TARGETS, batch_size=size)[0].params
    for name, leaf in expected.items():
        np.testing.assert_allclose(found[name], leaf, rtol=1000 * rtol, atol=100 * rtol)


def test_a_factor_serves_as_well_as_a_jacobian(rtol):
    """V = A' C by hand, without a cap: the same step."""
    optimizer = natural_gradient(0.5, step_control=nk.step_control(cap=None))
    seen = look(MODEL, PARAMS, INPUTS[:2], TARGETS[:2])
    root = seen.extra["noise_root"]
    factor = jax.tree.map(lambda rows: jnp.tensordot(root.T, rows, axes=1), seen.extra["jacobian"])
    state = optimizer.init(PARAMS)
    update = jax.jit(optimizer.update)
    with_factor, _ = update(seen.gradients, state, factor=factor, observations=2)
    with_jacobian, _ = update(seen.gradients, state, **seen.extra)
    for name, leaf in with_jacobian.items():
        np.testing.assert_allclose(with_factor[name], leaf, rtol=1000 * rtol, atol=10 * rtol)


def test_gradients_are_those_of_the_summed_likelihood(rtol):
    seen = look(MODEL, PARAMS, INPUTS, TARGETS)

    def loss(params):
        naturals = jax.vmap(lambda u: MODEL.natural(params, u))(INPUTS)
        return -jnp.sum(jax.vmap(MODEL.outputs.log_prob)(naturals, TARGETS))

    value, gradients = jax.jit(jax.value_and_grad(loss))(PARAMS)
    np.testing.assert_allclose(-jnp.sum(seen.log_prob), value, rtol=10 * rtol)
    for name, leaf in gradients.items():
        np.testing.assert_allclose(seen.gradients[name], leaf, rtol=100 * rtol, atol=10 * rtol)


def test_missing_targets_say_nothing():
    seen = look(MODEL, PARAMS, INPUTS[:2], jnp.array([1.0, jnp.nan]))
    assert int(seen.extra["observations"]) == 1


def test_equinox_and_nnx_modules():
    eqx, nnx = pytest.importorskip("equinox"), pytest.importorskip("flax.nnx")
    family = nk.families.Gaussian(1.0)
    module = eqx.nn.Linear(2, 1, key=jax.random.key(0))
    model = nk.static_model(module, family=family)
    seen = look(model, model.params, INPUTS, INPUTS[:, 0])
    optimizer = natural_gradient(1.0)
    updates, _ = jax.jit(optimizer.update)(seen.gradients, optimizer.init(model.params), **seen.extra)
    learned = eqx.apply_updates(module, updates)
    assert jnp.linalg.norm(learned.weight[0] - jnp.array([1.0, 0.0])) < jnp.linalg.norm(module.weight[0])

    other = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
    model = nk.static_model(other, family=family)
    trainer = nnx.Optimizer(other, natural_gradient(1.0), wrt=nnx.Param)
    before = np.asarray(other.kernel[...])
    seen = look(model, nnx.state(other, nnx.Param), INPUTS, INPUTS[:, 0])
    trainer.update(other, seen.gradients, **seen.extra)
    gap = np.linalg.norm(np.asarray(other.kernel[...])[:, 0] - [1.0, 0.0])
    assert gap < np.linalg.norm(before[:, 0] - [1.0, 0.0])


def test_what_is_missing_is_said():
    optimizer = natural_gradient(1.0)
    state = optimizer.init(PARAMS)
    with pytest.raises(ValueError, match=r"natkal.optax.observe makes them"):
        optimizer.update(PARAMS, state)
    jacobian = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), PARAMS)
    with pytest.raises(ValueError, match="noise_root: has 1 rows, the Jacobian has 2"):
        optimizer.update(PARAMS, state, jacobian=jacobian, noise_root=jnp.eye(1))
    with pytest.raises(ValueError, match="fisher_decay must equal the learning rate"):
        natural_gradient(rates=nk.learning_rate(0.1, fisher_decay=0.2))
    with pytest.raises(ValueError, match="only cap works on gradients"):
        natural_gradient(step_control=nk.step_control(newton=2))
    with pytest.raises(ValueError, match="prior_cov: must be a number"):
        natural_gradient(np.ones(3)).init(PARAMS)
    recurrent = nk.recurrent_model(
        lambda p, s, u: s, lambda p, s, u: p, jnp.ones(1), jnp.zeros(1), nk.families.Bernoulli()
    )
    with pytest.raises(ValueError, match="carries a state"):
        observe(recurrent, jnp.ones(1), INPUTS, TARGETS)
    weight = jnp.zeros(2)
    coin = nk.static_model(lambda w, u: u @ w, weight, nk.families.Bernoulli())
    for arguments, match in (
        ((weight, jnp.ones((4, 3)), np.ones(4, int)), "cannot take a row of shape"),
        ((weight, jnp.ones((4, 2)), np.full(4, 2)), "target 2 is outside"),
        ((weight, jnp.ones((4, 2)), np.ones(3, int)), "one row for each of the 3 targets"),
        (({"w": weight}, jnp.ones((4, 2)), np.ones(4, int)), "params: structure"),
    ):
        with pytest.raises(ValueError, match=match):
            observe(coin, *arguments)
