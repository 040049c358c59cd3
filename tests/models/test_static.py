"""Static models: the pullback is the Jacobian, and what `apply` puts out does not change what is learned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.models import ravel


def test_pullback_of_the_identity_is_the_jacobian(rtol: float) -> None:
    params = nk.mlp_params(jax.random.key(0), (3, 4, 2))
    model = nk.static_model(nk.mlp_apply, params, nk.families.Product(nk.families.Poisson(), nk.families.Bernoulli()))
    u = jnp.asarray([0.3, -1.0, 2.0])
    around = model.linearize(params, (), u)
    expected = jax.jacrev(lambda flat: model.raw(model.unravel(flat), u))(ravel(params))
    np.testing.assert_allclose(around.pullback(jnp.eye(2)), expected, rtol=rtol, atol=rtol)
    np.testing.assert_array_equal(ravel(model.unravel(ravel(params))), ravel(params))
    assert model.size == 3 * 4 + 4 + 4 * 2 + 2


@pytest.mark.parametrize(
    "family", [nk.families.Poisson(), nk.families.Gaussian(0.5), nk.families.NegativeBinomial(3.0)], ids=repr
)
def test_unconstrained_natural_and_mean_outputs_learn_the_same(family, rtol: float) -> None:
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(30, 2)), rng.poisson(2.0, size=30)
    applies = {
        "unconstrained": lambda w, u: w @ u,
        "natural": lambda w, u: family.link((w @ u)[None]),
        "mean": lambda w, u: family.mean(family.link((w @ u)[None])),
    }
    learned = []
    for output, apply in applies.items():
        model = nk.static_model(apply, jnp.zeros(2), family, output=output)
        learner = nk.online(model, prior_cov=0.1)
        learned.append(nk.run(learner, learner.init(jnp.zeros(2)), inputs, targets)[0].params)
    np.testing.assert_allclose(learned[1], learned[0], rtol=100 * rtol)
    np.testing.assert_allclose(learned[2], learned[0], rtol=100 * rtol)
