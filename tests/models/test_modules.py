"""Modules of other libraries are the functions they stand for, and what is not learned stays out of the parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk

KEY = jax.random.key(0)
INPUTS = jax.random.normal(jax.random.key(1), (12, 3))
TARGETS = (INPUTS[:, 0] > 0).astype(int)


def by_hand(params, u):
    """The network that each library's module below is: 3 - 4 - 1, tanh."""
    return jnp.tanh(u @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]


def equinox_network():
    eqx = pytest.importorskip("equinox")

    class Network(eqx.Module):
        first: eqx.nn.Linear
        second: eqx.nn.Linear
        calls: jax.Array
        name: str

        def __call__(self, u):
            return self.second(jnp.tanh(self.first(u)))

    keys = jax.random.split(KEY)
    network = Network(eqx.nn.Linear(3, 4, key=keys[0]), eqx.nn.Linear(4, 1, key=keys[1]), jnp.arange(2), "net")
    return network, nk.static_model(network, family=nk.families.Bernoulli()), network


def nnx_network():
    nnx = pytest.importorskip("flax.nnx")

    class Network(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(3, 4, rngs=rngs)
            self.second = nnx.Linear(4, 1, rngs=rngs)
            self.seen = nnx.BatchStat(jnp.zeros(3))

        def __call__(self, u):
            return self.second(jnp.tanh(self.first(u)))

    network = Network(nnx.Rngs(0))
    return network, nk.static_model(network, family=nk.families.Bernoulli()), network


def linen_network():
    linen = pytest.importorskip("flax.linen")

    class Network(linen.Module):
        @linen.compact
        def __call__(self, u):
            return linen.Dense(1)(jnp.tanh(linen.Dense(4)(u)))

    network = Network()
    variables = network.init(KEY, INPUTS[0])
    model = nk.static_model(network, {**variables, "batch_stats": {"seen": jnp.zeros(3)}}, nk.families.Bernoulli())
    return network, model, lambda u: network.apply(variables, u)


def weights(params) -> dict:
    """The four arrays of any library's parameters, in `by_hand`'s names and orientation."""
    found = {"w1": None, "b1": None, "w2": None, "b2": None}
    for leaf in jax.tree.leaves(params):
        array = np.asarray(leaf)
        match array.shape:
            case (3, 4):
                found["w1"] = array
            case (4, 3):
                found["w1"] = array.T
            case (4, 1):
                found["w2"] = array
            case (1, 4):
                found["w2"] = array.T
            case (4,):
                found["b1"] = array
            case (1,):
                found["b2"] = array
    return found


@pytest.mark.parametrize(
    "build",
    [
        equinox_network,
        pytest.param(nnx_network, marks=pytest.mark.slow),
        pytest.param(linen_network, marks=pytest.mark.slow),
    ],
)
def test_a_module_is_its_function(build, rtol):
    _, model, call = build()
    assert model.size == 3 * 4 + 4 + 4 + 1  # the counter, the statistics and the name are not learned
    plain = nk.static_model(by_hand, weights(model.params), nk.families.Bernoulli())
    around, expected = (each.linearize(each.params, (), INPUTS[0]) for each in (model, plain))
    np.testing.assert_allclose(around.raw, call(INPUTS[0]), rtol=max(rtol, 1e-6))
    np.testing.assert_allclose(around.raw, expected.raw, rtol=max(rtol, 1e-6))
    row, other = (each.pullback(jnp.ones((1, 1)))[0] for each in (around, expected))
    gradient = weights(model.unravel(row))
    for name, leaf in plain.unravel(other).items():
        np.testing.assert_allclose(gradient[name], leaf, rtol=max(rtol, 1e-5))


def test_learned_parameters_go_back_into_the_module():
    eqx = pytest.importorskip("equinox")
    network, model, _ = equinox_network()
    moved = jax.tree.map(lambda leaf: leaf + 1, model.params)
    np.testing.assert_array_equal(eqx.combine(moved, network).first.weight, network.first.weight + 1)
    assert eqx.combine(moved, network).name == "net"


def equinox_cell():
    eqx = pytest.importorskip("equinox")
    keys = jax.random.split(KEY)
    cell, readout = eqx.nn.LSTMCell(3, 2, key=keys[0]), eqx.nn.Linear(2, 1, key=keys[1])
    return cell, readout, (jnp.zeros(2), jnp.zeros(2)), lambda state, u: cell(u, state), lambda state: readout(state[0])


def nnx_cell():
    nnx = pytest.importorskip("flax.nnx")
    rngs = nnx.Rngs(0)
    cell, readout = nnx.LSTMCell(3, 2, rngs=rngs), nnx.Linear(2, 1, rngs=rngs)
    state = (jnp.zeros(2), jnp.zeros(2))
    return cell, readout, state, lambda state, u: cell(state, u)[0], lambda state: readout(state[1])


@pytest.mark.parametrize("build", [equinox_cell, nnx_cell])
def test_cells_and_readouts_may_be_modules(build, rtol):
    cell, readout, state, advance, read = build()
    model = nk.recurrent_model(cell, readout, state=state, family=nk.families.Bernoulli())

    @jax.jit
    def both(carry, state, u):
        around = model.linearize(model.params, carry, u)
        moved = advance(state, u)
        return around.raw, around.carry, moved, read(moved)

    carry = model.init_carry(model.params)
    for u in INPUTS[:2]:
        raw, carry, state, expected = both(carry, state, u)
        np.testing.assert_allclose(raw, expected, rtol=max(rtol, 1e-6))


def test_what_is_missing_is_said():
    linen = pytest.importorskip("flax.linen")
    with pytest.raises(ValueError, match="a Linen module holds none"):
        nk.static_model(linen.Dense(1), family=nk.families.Bernoulli())
    with pytest.raises(ValueError, match=r"family: must be one of .* got None"):
        nk.static_model(lambda w, u: w @ u, jnp.zeros(2))
    cell, _, state, *_ = equinox_cell()
    with pytest.raises(ValueError, match="readout: must be a module too"):
        nk.recurrent_model(cell, lambda w, s, u: s, state=state, family=nk.families.Bernoulli())
