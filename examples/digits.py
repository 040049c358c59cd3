"""Handwritten digits seen once: nk.auto with nothing to tune beside Adam at the best of its rates in hindsight."""

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from natkal.data import digits
from picture import BLUE, GREY, ORANGE, panels, save

RATES = (1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2)
pixels, labels = digits()
order = np.random.default_rng(0).permutation(len(labels))
inputs, targets = jnp.asarray(pixels[order] / 16.0), jnp.asarray(labels[order].astype(int))
params = nk.mlp_params(jax.random.key(0), (64, 16, 10))
model = nk.static_model(nk.mlp_apply, params, nk.families.Categorical(10))

learner = nk.auto(model, members=4, curvature=nk.blocks(by="neuron"))
_, info = nk.run(learner, learner.init(params), inputs, targets)


def adam(rate: float) -> np.ndarray:
    """Log loss of each image before Adam's step on it."""

    def loss(params, u, y):
        return -jax.nn.log_softmax(nk.mlp_apply(params, u))[y]

    def step(state, row):
        params, first, second, t = state
        value, gradient = jax.value_and_grad(loss)(params, *row)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
        scale = rate * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        params = jax.tree.map(lambda p, m, v: p - scale * m / (jnp.sqrt(v) + 1e-8), params, first, second)
        return (params, first, second, t + 1), value

    zeros = jax.tree.map(jnp.zeros_like, params)
    return np.asarray(jax.lax.scan(step, (params, zeros, zeros, 1.0), (inputs, targets))[1])


def so_far(losses: np.ndarray) -> np.ndarray:
    """The mean up to each image."""
    return np.cumsum(losses) / np.arange(1, len(losses) + 1)


ours = so_far(-np.asarray(info.log_prob))
theirs = {rate: so_far(adam(rate)) for rate in RATES}
best = min(RATES, key=lambda rate: theirs[rate][-1])
print(f"log loss over the whole pass: nk.auto {ours[-1]:.3f}")
for rate in RATES:
    print(f"Adam at rate {rate:g}: {theirs[rate][-1]:.3f}")

figure, (axis,) = panels(1, width=8.0, height=3.2)
for rate in RATES:
    axis.plot(theirs[rate], color=ORANGE if rate == best else GREY, lw=1.6 if rate == best else 0.9)
axis.plot(ours, color=BLUE, lw=2)
axis.set(xlabel="images seen", ylabel="mean log loss so far", ylim=(0, 2.5), xlim=(0, len(ours)))
axis.text(1000, ours[1000] - 0.22, "nk.auto", color=BLUE)
axis.text(1000, theirs[best][1000] - 0.17, f"Adam, best rate ({best:g})", color=ORANGE)
axis.text(1790, 1.72, "grey: Adam, other rates", color=GREY, ha="right")
save(figure)
