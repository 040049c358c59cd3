"""A recurrent model under the engine: theta+init, resets, state correction, foreign cells, any curvature."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.curvature.units import find_layers
from natkal.models import ravel

STEPS = 24


@pytest.fixture(scope="module")
def stream():
    rng = np.random.default_rng(0)
    return rng.normal(size=(STEPS, 2)), rng.integers(2, size=STEPS)


def network(**options):
    return nk.recurrent_network(jax.random.key(0), nk.cells.tanh(3), 2, nk.families.Bernoulli(), **options)


def learn(model, stream, **options):
    learner = nk.online(model, prior_cov=0.2)
    return nk.run(learner, learner.init(model.params), *stream, **options)


def test_resets_are_separate_sequences(stream, rtol) -> None:
    """One run with a boundary = two runs, the second from a fresh state with what the first learned."""
    inputs, targets = stream
    cut = 10
    model = network()
    learner = nk.online(model, prior_cov=0.2)
    together, info = nk.run(learner, learner.init(model.params), inputs, targets, resets=np.arange(STEPS) == cut)
    first, before = nk.run(learner, learner.init(model.params), inputs[:cut], targets[:cut])
    fresh = learner.restart(first)
    assert float(jnp.abs(ravel(fresh.carry.state)).max()) == 0.0
    assert float(jnp.abs(fresh.carry.sensitivity).max()) == 0.0
    second, after = nk.run(learner, fresh, inputs[cut:], targets[cut:])
    np.testing.assert_allclose(info.log_prob, np.concatenate([before.log_prob, after.log_prob]), rtol=rtol, atol=rtol)
    np.testing.assert_allclose(ravel(together.params), ravel(second.params), rtol=rtol, atol=rtol)
    with pytest.raises(ValueError, match=r"resets: must be 24 booleans, one for each target, got shape \(3,\)"):
        nk.run(learner, first, inputs, targets, resets=np.zeros(3, bool))


def test_state_follows_theta_unless_told_not_to(stream, rtol) -> None:
    """s <- s + G step (Thm 12); projected where asked; left alone with state_correction=False."""
    inputs, targets = stream
    moved = {}
    for name, options in {
        "corrected": {},
        "projected": {"project": lambda s: jnp.clip(s, -0.1, 0.1)},
        "left": {"state_correction": False},
    }.items():
        model = network(**options)
        learner = nk.online(model, prior_cov=0.2)
        before = learner.init(model.params)
        after, _ = learner.step(before, inputs[0], targets[0])
        step = ravel(after.params) - ravel(before.params)
        moved[name] = after.carry.state, after.carry.sensitivity @ step
    plain, pushed = moved["left"]
    np.testing.assert_allclose(moved["corrected"][0], plain + pushed, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(moved["projected"][0], np.clip(plain + pushed, -0.1, 0.1), rtol=rtol, atol=rtol)
    assert float(jnp.max(jnp.abs(pushed))) > 1e-4


def test_initial_state_as_parameter_is_an_uncertain_initial_state(stream, rtol) -> None:
    """theta+init with prior variance v on s_0 learns the same theta as W_0 = v."""
    variance = 0.3
    plain = network(state_cov=variance)
    params = {**plain.params, "start": jnp.zeros(3)}
    extended = nk.recurrent_model(
        plain.cell, plain.readout, params, lambda params: params["start"], nk.families.Bernoulli()
    )
    priors = {**jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.2), plain.params), "start": jnp.full(3, variance)}
    learner = nk.online(extended, prior_cov=priors)
    state, info = nk.run(learner, learner.init(params), *stream)
    reference, expected = learn(plain, stream)
    np.testing.assert_allclose(info.log_prob, expected.log_prob, rtol=10 * rtol, atol=10 * rtol)
    np.testing.assert_allclose(state.carry.state, reference.carry.state, rtol=10 * rtol, atol=10 * rtol)
    assert float(jnp.max(jnp.abs(state.params["start"]))) > 1e-3
    with pytest.raises(ValueError, match=r"needs sensitivity=rtrl\(\), got uoro\(\)"):
        nk.online(dataclasses.replace(extended, sensitivity=nk.sensitivity.uoro())).init(params)


def test_a_cell_that_declares_nothing_learns_the_same(stream, rtol) -> None:
    """The sparse path of ready cells against the general one."""
    declared = network()
    plain = nk.recurrent_model(
        lambda params, s, u: declared.cell(params, s, u), declared.readout, declared.params, declared.state,
        nk.families.Bernoulli(),
    )  # fmt: skip
    assert plain.system.owners is None
    np.testing.assert_allclose(
        learn(plain, stream)[1].log_prob, learn(declared, stream)[1].log_prob, rtol=rtol, atol=rtol
    )


@pytest.mark.parametrize("name", ["lru", pytest.param("rtu", marks=pytest.mark.slow)])
def test_traces_learn_what_the_whole_matrix_learns(name, stream, rtol) -> None:
    """Under a curvature with a block for each unit, diagonal() and rtrl() are one learner; forecasts are too."""
    traces = nk.recurrent_network(
        jax.random.key(0), getattr(nk.cells, name)(3), 2, nk.families.Bernoulli(), hidden=(2,)
    )
    whole = dataclasses.replace(traces, sensitivity=nk.sensitivity.rtrl())
    curvature = nk.mixed({"['cell']*": nk.blocks(), "*": nk.dense()})
    found = []
    for model in (traces, whole):
        learner = nk.online(model, prior_cov=0.2, curvature=curvature)
        state, info = nk.run(learner, learner.init(model.params), *stream)
        ahead = learner.forecast(state, stream[0][:3], 3)
        found.append((ravel(state.params), ravel(state.carry.state), info.log_prob, ahead.mean, ahead.natural_cov))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=100 * rtol, atol=100 * rtol)


def test_a_block_holds_all_weights_of_a_unit() -> None:
    """Drive, gate, bias and rotation of a unit are one block: 3 inputs make 3 x 3 + 1 + 2 = 12 numbers."""
    model = nk.recurrent_network(jax.random.key(0), nk.cells.rtu(5), 3, nk.families.Gaussian(1.0))
    layers = find_layers(
        tuple((jax.tree_util.keystr(path), leaf.shape) for path, leaf in jax.tree.leaves_with_path(model.params))
    )
    assert sorted((layer.inputs, layer.units) for layer in layers.layers) == [(11, 1), (12, 5)]


def test_a_stack_learns(stream) -> None:
    """Its state keeps one structure, and every layer moves."""
    stack = nk.cells.stack(nk.cells.lru(2), nk.cells.rtu(2))
    model = nk.recurrent_network(
        jax.random.key(0), stack, 2, nk.families.Bernoulli(), sensitivity=nk.sensitivity.layerwise()
    )
    state, info = learn(model, stream)
    assert np.isfinite(info.log_prob).all()
    moved = jax.tree.map(lambda new, old: float(jnp.max(jnp.abs(new - old))), state.params, model.params)
    assert min(moved["cell"]["layers"][0]["real"], moved["cell"]["layers"][1]["real"]) > 1e-6
    assert moved["cell"]["maps"][0]["weight"] > 1e-6


def test_a_structured_state_and_errors_in_the_users_words(stream) -> None:
    model = nk.recurrent_network(jax.random.key(0), nk.cells.lstm(2), 2, nk.families.Bernoulli())
    state, _ = learn(model, stream)
    assert jax.tree.map(jnp.shape, state.carry.state) == ((2,), (2,))
    wrong = nk.recurrent_model(model.cell, model.readout, model.params, model.state, nk.families.Categorical(5))
    with pytest.raises(ValueError, match=r"readout: gives 1 numbers per observation, Categorical.* takes"):
        learn(wrong, stream)
    odd = nk.recurrent_model(
        lambda w, s, u: s[:2], lambda w, s, u: s[:1], jnp.zeros(1), jnp.zeros(3), nk.families.Gaussian(1.0)
    )
    with pytest.raises(ValueError, match=r"cell: returns a state of shape \(2,\), the initial state has \(3,\)"):
        nk.online(odd).predict(nk.online(odd).init(jnp.zeros(1)), np.zeros(2))
    with pytest.raises(ValueError, match=r"state\[0\]: has dtype int.*; every leaf must be floating point"):
        nk.recurrent_model(
            lambda w, s, u: s, lambda w, s, u: s, jnp.zeros(1), [jnp.zeros(2, int)], nk.families.Gaussian(1.0)
        )


def test_an_equinox_cell(stream) -> None:
    eqx = pytest.importorskip("equinox")
    gru = eqx.nn.GRUCell(2, 3, key=jax.random.key(0))
    params, static = eqx.partition({"gru": gru, "out": jnp.zeros((1, 3))}, eqx.is_inexact_array)

    def cell(params, s, u):
        return eqx.combine(params, static)["gru"](u, s)

    model = nk.recurrent_model(cell, lambda w, s, u: w["out"] @ s, params, jnp.zeros(3), nk.families.Bernoulli())
    state, info = learn(model, stream)
    assert np.isfinite(info.log_prob).all()
    assert float(jnp.max(jnp.abs(state.params["gru"].weight_hh - gru.weight_hh))) > 1e-5


def test_a_flax_cell(stream) -> None:
    linen = pytest.importorskip("flax.linen")
    gru = linen.GRUCell(features=3)
    params = {"gru": gru.init(jax.random.key(0), jnp.zeros(3), jnp.zeros(2)), "out": jnp.zeros((1, 3))}
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.zeros(()).dtype), params)

    def cell(params, s, u):
        return gru.apply(params["gru"], s, u)[0]

    model = nk.recurrent_model(cell, lambda w, s, u: w["out"] @ s, params, jnp.zeros(3), nk.families.Bernoulli())
    state, info = learn(model, stream)
    assert np.isfinite(info.log_prob).all()
    assert float(jnp.max(jnp.abs(ravel(state.params) - ravel(params)))) > 1e-5
