"""Learning does not change under the re-encodings that the natural gradient promises, observation by observation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk

FEATURES, HIDDEN, CLASSES, STEPS = 4, 3, 3, 30
SCALES, SHIFTS = np.array([2.0, 0.5, 3.0, -1.0]), np.array([0.3, -0.2, 0.1, 0.7])


def stream():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(STEPS, FEATURES))
    return inputs, rng.integers(CLASSES, size=STEPS)


def trajectory(apply, params, curvature, prior_cov, inputs, targets):
    model = nk.static_model(apply, params, nk.families.Categorical(CLASSES, minimal=False))
    learner = nk.online(model, prior_cov=prior_cov, curvature=curvature, rates=nk.fading(0.01))
    _, info = nk.run(learner, learner.init(params), inputs, targets)
    return np.asarray(info.prediction.mean)


def rescaled(params, scales):
    """The same function of inputs multiplied by `scales`."""
    first, *rest = params
    return [{"weight": first["weight"] / scales[:, None], "bias": first["bias"]}, *rest]


def shifted(params, scales, shifts):
    """The same function of inputs x -> scales x + shifts."""
    first, *rest = rescaled(params, scales)
    return [{"weight": first["weight"], "bias": first["bias"] - shifts @ first["weight"]}, *rest]


@pytest.mark.float64
@pytest.mark.slow
@pytest.mark.parametrize("curvature", [nk.diagonal(), nk.low_rank(4)], ids=["diagonal", "low rank"])
def test_rescaled_inputs_with_the_prior_re_expressed(curvature) -> None:
    """Enough for a structure that contains the diagonal; those below are indifferent to shifts too."""
    inputs, targets = stream()
    params = nk.mlp_params(jax.random.key(0), (FEATURES, HIDDEN, CLASSES))
    prior = jax.tree.map(jnp.ones_like, params)
    prior_rescaled = [{"weight": prior[0]["weight"] / SCALES[:, None] ** 2, "bias": prior[0]["bias"]}, *prior[1:]]
    plain = trajectory(nk.mlp_apply, params, curvature, prior, inputs, targets)
    other = trajectory(nk.mlp_apply, rescaled(params, SCALES), curvature, prior_rescaled, inputs * SCALES, targets)
    np.testing.assert_allclose(other, plain, rtol=1e-7, atol=1e-9)


@pytest.mark.float64
@pytest.mark.parametrize(
    "curvature",
    [
        pytest.param(nk.dense(), id="dense"),
        pytest.param(nk.blocks(by="layer"), id="layer", marks=pytest.mark.slow),
        pytest.param(nk.blocks(by="neuron"), id="neuron", marks=pytest.mark.slow),
        pytest.param(nk.quasi_diagonal(), id="quasi-diagonal"),
    ],
)
def test_shifted_and_inverted_inputs(curvature) -> None:
    """x -> a x + b moves weight into bias: the prior is re-expressed as the matrix T Sigma T' of the new parameters."""
    inputs, targets = stream()
    params = nk.mlp_params(jax.random.key(0), (FEATURES, HIDDEN, CLASSES))
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    change = jax.jacobian(
        lambda flat: jax.flatten_util.ravel_pytree(shifted(unravel(flat), jnp.asarray(SCALES), jnp.asarray(SHIFTS)))[0]
    )(flat)
    plain = trajectory(nk.mlp_apply, params, curvature, np.eye(len(flat)), inputs, targets)
    moved = shifted(params, SCALES, SHIFTS)
    other = trajectory(nk.mlp_apply, moved, curvature, change @ change.T, inputs * SCALES + SHIFTS, targets)
    np.testing.assert_allclose(other, plain, rtol=1e-7, atol=1e-9)


@pytest.mark.float64
def test_logistic_units_learn_what_tanh_units_learn() -> None:
    """tanh(a) = 2 logistic(2a) - 1, so one network is the other with each layer's parameters changed affinely."""
    curvature = nk.quasi_diagonal()
    inputs, targets = stream()
    params = nk.mlp_params(jax.random.key(0), (FEATURES, HIDDEN, CLASSES))

    def as_logistic(params):
        first, last = params
        return [
            {"weight": 2 * first["weight"], "bias": 2 * first["bias"]},
            {"weight": 2 * last["weight"], "bias": last["bias"] - jnp.sum(last["weight"], axis=0)},
        ]

    flat, unravel = jax.flatten_util.ravel_pytree(params)
    change = jax.jacobian(lambda flat: jax.flatten_util.ravel_pytree(as_logistic(unravel(flat)))[0])(flat)
    plain = trajectory(nk.mlp_apply, params, curvature, np.eye(len(flat)), inputs, targets)
    other = trajectory(
        lambda params, u: nk.mlp_apply(params, u, jax.nn.sigmoid),
        as_logistic(params),
        curvature,
        change @ change.T,
        inputs,
        targets,
    )
    np.testing.assert_allclose(other, plain, rtol=1e-7, atol=1e-9)


@pytest.mark.float64
def test_a_diagonal_does_change_with_the_encoding() -> None:
    """The promise is not empty: the plain diagonal breaks it under a shift."""
    inputs, targets = stream()
    params = nk.mlp_params(jax.random.key(0), (FEATURES, HIDDEN, CLASSES))
    plain = trajectory(nk.mlp_apply, params, nk.diagonal(), 1.0, inputs, targets)
    other = trajectory(
        nk.mlp_apply, shifted(params, SCALES, SHIFTS), nk.diagonal(), 1.0, inputs * SCALES + SHIFTS, targets
    )
    assert np.abs(other - plain).max() > 1e-2
