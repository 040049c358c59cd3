"""White on black or black on white: the quasi-diagonal filter learns the same thing, the diagonal one does not."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import natkal as nk
from natkal.data import digits
from picture import BLUE, ORANGE, panels, save

jax.config.update("jax_enable_x64", True)
STEPS = 1000
pixels, labels = digits()
order = np.random.default_rng(0).permutation(len(labels))[:STEPS]
white = jnp.asarray(pixels[order] / 16.0)
targets = jnp.asarray(labels[order].astype(int))
params = nk.mlp_params(jax.random.key(0), (64, 8, 10))


def inverted(params):
    """The same network for inputs 1 - x: w x + b = -w (1 - x) + (b + sum of w)."""
    first, last = params
    return [{"weight": -first["weight"], "bias": first["bias"] + first["weight"].sum(axis=0)}, last]


flat, unravel = ravel_pytree(params)
change = jax.jacobian(lambda flat: ravel_pytree(inverted(unravel(flat)))[0])(flat)
prior = 3 * ravel_pytree(nk.paper.dictionary.fan_in_prior(params))[0]


def losses(curvature, params, prior_cov, inputs) -> np.ndarray:
    """Mean log loss so far, before learning each image."""
    model = nk.static_model(nk.mlp_apply, params, nk.families.Categorical(10))
    learner = nk.online(model, prior_cov=prior_cov, curvature=curvature)
    _, info = nk.run(learner, learner.init(params), inputs, targets)
    return -np.cumsum(info.log_prob) / np.arange(1, STEPS + 1)


figure, axes = panels(2, width=8.5, height=3.0, sharey=True)
for axis, name, curvature, same_prior in (
    (axes[0], "diagonal", nk.diagonal(), prior * jnp.diagonal(change) ** 2),  # the closest prior it can hold
    (axes[1], "quasi-diagonal", nk.quasi_diagonal(), (change * prior) @ change.T),
):
    plain = losses(curvature, params, prior, white)
    other = losses(curvature, inverted(params), same_prior, 1 - white)
    print(f"{name}: log loss {plain[-1]:.4f}, inverted {other[-1]:.4f}, largest gap {np.abs(plain - other).max():.0e}")
    axis.plot(plain, color=BLUE, lw=4, alpha=0.45)
    axis.plot(other, color=ORANGE, lw=1.4)
    axis.set(title=name, xlabel="images seen", ylim=(0, 3), xlim=(0, STEPS))
axes[0].set_ylabel("mean log loss so far")
axes[1].text(330, 1.75, "white on black", color=BLUE)
axes[1].text(330, 1.5, "black on white, on top of it", color=ORANGE)
save(figure)
