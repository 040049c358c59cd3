"""What every model answers: an example input, the same network under another law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.models import infer_inputs

GAUSSIAN = nk.families.Gaussian(1.0)


def mlp(family):
    return nk.static_model(nk.mlp_apply, nk.mlp_params(jax.random.key(0), (3, 5, family.raw_dim)), family)


def recurrent(family, cell="gru"):
    return nk.recurrent_network(jax.random.key(0), getattr(nk.cells, cell)(4), 3, family)


BUILD = {"static": mlp, "recurrent": recurrent, "unscented": lambda family: nk.unscented(mlp(family), sd=0.1)}


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (mlp(GAUSSIAN), (3,)),
        (recurrent(GAUSSIAN), (3,)),
        (nk.unscented(mlp(GAUSSIAN), sd=0.1), (3,)),
        (nk.static_model(lambda w, u: w * u, jnp.zeros(()), GAUSSIAN), ()),
        (nk.static_model(lambda w, u: w * u[0], jnp.zeros(()), GAUSSIAN), (1,)),
        (nk.static_model(lambda w, u: w * u["a"], jnp.zeros(()), GAUSSIAN), None),
        (nk.static_model(lambda w, u: w @ u[:3, 1], jnp.zeros(3), GAUSSIAN), None),
    ],
    ids=["network", "recurrent", "sigma", "scalar", "first entry", "dictionary", "image"],
)
def test_an_example_input_is_found_from_shapes_alone(model, shape) -> None:
    found = infer_inputs(model)
    assert (found is None) == (shape is None)
    if shape is not None:
        assert found.shape == shape
        assert found.dtype == jnp.result_type(*jax.tree.leaves(model.params))
        model.linearize(model.params, model.init_carry(model.params), found)


@pytest.mark.parametrize("name", BUILD)
def test_another_law_of_the_same_outputs(name, rtol) -> None:
    """The raw output and its Jacobian stay; the law is the new one."""
    model = BUILD[name](GAUSSIAN)
    other = model.with_outputs(nk.families.Poisson())
    assert isinstance(other.outputs, nk.families.Poisson)
    u = jnp.array([0.3, -1.0, 0.5])
    found, expected = (each.linearize(model.params, model.init_carry(model.params), u) for each in (other, model))
    np.testing.assert_allclose(found.raw, expected.raw, rtol=rtol)
    np.testing.assert_allclose(found.pullback(jnp.eye(1)), expected.pullback(jnp.eye(1)), rtol=rtol, atol=rtol)
    learner = nk.online(other, prior_cov=0.1)
    _, info = nk.run(learner, learner.init(model.params), np.ones((3, 3)), np.array([0, 2, 1]))
    assert np.isfinite(info.log_prob).all()
