"""A network learns a curve point by point; what it does not know yet is the width of the band."""

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from picture import BLUE, GREY, INK, panels, save

NOISE = 0.15
rng = np.random.default_rng(1)
where = rng.uniform(-2.0, 2.0, 300)
inputs = jnp.asarray(where[:, None])
targets = jnp.asarray(np.sin(2.5 * where) + 0.4 * where + NOISE * rng.normal(size=300))
grid = jnp.linspace(-2.6, 2.6, 131)[:, None]

# hidden units that bend in different places and may move a little; an output layer that may do as it likes
_, last = nk.mlp_params(jax.random.key(0), (1, 30, 1))
first = {"weight": jnp.asarray(3 * rng.normal(size=(1, 30))), "bias": jnp.asarray(2.5 * rng.normal(size=30))}
params = [first, last]
prior_cov = [{"weight": 0.05, "bias": 0.05}, {"weight": 0.6, "bias": 1.0}]
model = nk.static_model(nk.mlp_apply, params, nk.families.Gaussian(NOISE**2))
learner = nk.online(model, prior_cov=prior_cov)
state = learner.init(params)
predict = jax.jit(jax.vmap(learner.predict, in_axes=(None, 0)))

figure, axes = panels(4, width=9.5, height=2.8, sharey=True)
seen = 0
for axis, count in zip(axes, (3, 10, 30, 300), strict=True):
    state, _ = nk.run(learner, state, inputs[seen:count], targets[seen:count])
    seen = count
    prediction = predict(state, grid)
    mean = prediction.mean[:, 0]
    spread = 2 * np.sqrt(np.maximum(prediction.cov[:, 0, 0] - NOISE**2, 0.0))
    axis.fill_between(grid[:, 0], mean - spread, mean + spread, color=BLUE, alpha=0.25, lw=0)
    axis.plot(grid[:, 0], mean, color=BLUE, lw=1.6)
    axis.plot(grid[:, 0], np.sin(2.5 * grid[:, 0]) + 0.4 * grid[:, 0], color=INK, lw=0.9, ls=":")
    axis.plot(where[:count], targets[:count], ".", color=GREY, ms=4, zorder=0)
    axis.set(title=f"{count} points", xlim=(-2.6, 2.6), ylim=(-3, 3), xticks=(-2, 0, 2))
    inside = np.abs(grid[:, 0]) <= 2
    print(f"{count} points: mean half-width of the band where there are data {float(spread[inside].mean()):.2f}")
axes[0].set_ylabel("output")
figure.supxlabel("line and band: the learned mean, ±2 sd of what is not known of it.  dotted: the truth", fontsize=9)
save(figure)
