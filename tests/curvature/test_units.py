"""Layers and units, read from names and shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.curvature.units import find_layers
from natkal.rows import FactoredRows, Outer


def layout_of(params):
    return tuple((jax.tree_util.keystr(path), leaf.shape) for path, leaf in jax.tree.leaves_with_path(params))


def shapes(params) -> list[tuple[int, int, bool]]:
    return [(layer.inputs, layer.units, layer.has_bias) for layer in find_layers(layout_of(params)).layers]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ([{"weight": jnp.zeros((3, 2)), "bias": jnp.zeros(2)}], [(4, 2, True)]),
        ([(jnp.zeros((3, 2)), jnp.zeros(2)), (jnp.zeros((2, 2)), jnp.zeros(2))], [(4, 2, True), (3, 2, True)]),
        (
            {"b1": jnp.zeros(2), "b2": jnp.zeros(2), "w1": jnp.zeros((3, 2)), "w2": jnp.zeros((2, 2))},
            [(4, 2, True), (3, 2, True)],
        ),
        ({"kernel": jnp.zeros((3, 3, 1, 8)), "bias": jnp.zeros(8)}, [(10, 8, True)]),
        ({"cell": {"wx": jnp.zeros((3, 8)), "wh": jnp.zeros((4, 8)), "b": jnp.zeros(8)}}, [(8, 8, True)]),
        ({"weight": jnp.zeros((2, 5)), "bias": jnp.zeros(2)}, [(6, 2, True)]),  # units first
        ({"scale": jnp.zeros(6), "offset": jnp.zeros(6)}, [(2, 6, False)]),
        ({"w": jnp.zeros(3), "b": jnp.zeros(())}, [(4, 1, True)]),
        (jnp.zeros(5), [(5, 1, False)]),
        (jnp.zeros((5, 2)), [(5, 2, False)]),
    ],
)
def test_what_feeds_a_unit(params, expected) -> None:
    assert shapes(params) == expected
    layers = find_layers(layout_of(params))
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(2, size)))
    np.testing.assert_array_equal(layers.join(layers.split(rows)), rows)
    np.testing.assert_array_equal(layers.whole().join(layers.whole().split(rows)), rows)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nk.blocks(by="row"), "by"),
        (lambda: nk.low_rank(0), "rank: must be at least 1, got 0"),
        (lambda: nk.mixed({}), "curvatures: at least one pattern"),
    ],
)
def test_wrong_arguments_are_named(build, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        build()


def test_patterns_that_match_nothing_are_named() -> None:
    params = nk.mlp_params(jax.random.key(0), (3, 2, 2))
    model = nk.static_model(nk.mlp_apply, params, nk.families.Categorical(2, minimal=False))
    with pytest.raises(ValueError, match=r"no pattern matches the parameters \"\[1\]"):
        nk.online(model, curvature=nk.mixed({"[0]*": nk.diagonal()})).init(params)
    with pytest.raises(ValueError, match=r"no parameters match '\[7\]\*'"):
        nk.online(model, curvature=nk.mixed({"*": nk.diagonal(), "[7]*": nk.dense()})).init(params)


def test_last_layer_alone_is_learned_and_the_rest_stays(rtol: float) -> None:
    """And equals a filter on the last layer's parameters over fixed features."""
    params = nk.mlp_params(jax.random.key(0), (3, 4, 2))
    model = nk.static_model(nk.mlp_apply, params, nk.families.Categorical(2, minimal=False))
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(10, 3)), rng.integers(2, size=10)
    learner = nk.online(model, curvature=nk.last_layer(nk.dense()))
    state, info = nk.run(learner, learner.init(params), inputs, targets)
    np.testing.assert_array_equal(state.params[0]["weight"], params[0]["weight"])
    features = np.tanh(inputs @ np.asarray(params[0]["weight"]) + np.asarray(params[0]["bias"]))
    head = nk.static_model(
        lambda layer, u: u @ layer["weight"] + layer["bias"], params[1], nk.families.Categorical(2, minimal=False)
    )
    alone = nk.online(head)
    end, alone_info = nk.run(alone, alone.init(params[1]), features, targets)
    np.testing.assert_allclose(state.params[1]["weight"], end.params["weight"], rtol=1e3 * rtol, atol=10 * rtol)
    np.testing.assert_allclose(info.log_prob, alone_info.log_prob, rtol=100 * rtol)


def test_a_matrix_seen_as_one_unit_has_no_outer_products() -> None:
    rows = FactoredRows(leaves=(Outer(jnp.ones(3), jnp.ones((1, 2)), 1),), biases=())
    layers = find_layers((("['w']", (3, 2)),))
    assert layers.layers[0].outer(rows) is not None
    assert layers.whole().layers[0].outer(rows) is None
    assert layers.whole().layers[0].matrices(rows).shape == (1, 6, 1)
