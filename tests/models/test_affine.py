"""Affine layers are found in what a model traces to; whatever is found, the Jacobian is the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.models.affine import linearize_factored
from natkal.rows import Outer

SHARED = {"bias": jnp.full(3, 0.1), "weight": jnp.eye(3) + 0.2}
TORCH = {"b": jnp.full(4, 0.1), "head": jnp.ones((2, 4)), "w": 0.1 * jnp.arange(12.0).reshape(4, 3)}
call = jax.jit(lambda layer, x: layer["bias"] + x @ layer["weight"])


def convolution(params, u):
    return jnp.convolve(u, params["kernel"], mode="valid") @ params["head"]


CASES = {
    "network": (nk.mlp_apply, nk.mlp_params(jax.random.key(0), (3, 4, 2)), ((1, 0), (3, 2))),
    "nested calls": (lambda p, u: call(p[1], jnp.tanh(call(p[0], u))), [SHARED, SHARED], ((1, 0), (3, 2))),
    "units first, no bias": (lambda p, u: p["head"] @ jax.nn.relu(p["w"] @ u + p["b"]), TORCH, ((2, 0),)),
    "a weight used twice": (lambda p, u: call(p, jnp.tanh(call(p, u))), SHARED, None),
    "a bias used twice": (
        lambda p, u: p["bias"] * jnp.tanh(u @ p["weight"] + p["bias"]),
        SHARED,
        (),
    ),
    "convolution": (convolution, {"head": jnp.ones((2, 2)), "kernel": jnp.ones(2)}, ()),
    "no matrix": (lambda p, u: p * u, jnp.ones(3), None),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_the_jacobian(name: str, rtol: float) -> None:
    apply, params, biases = CASES[name]
    inputs = jnp.array([0.5, -1.0, 2.0])

    @jax.jit
    def both(params, inputs):
        raw, pull = linearize_factored(apply, params, inputs)
        jacobian = jax.jacrev(lambda params: apply(params, inputs))(params)
        rows = jnp.concatenate([leaf.reshape(len(raw), -1) for leaf in jax.tree.leaves(jacobian)], axis=1)
        return raw - apply(params, inputs), pull(jnp.eye(len(raw))), rows

    difference, found, expected = both(params, inputs)
    np.testing.assert_allclose(difference, 0, atol=rtol)
    np.testing.assert_allclose(found.dense(), expected, rtol=rtol, atol=rtol)
    assert any(isinstance(leaf, Outer) for leaf in found.leaves) == (biases is not None)
    assert found.biases == (biases or ())
