"""A thousand small models at once, one for each key: one compiled scan under vmap, each with its own uncertainty."""

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from picture import BLUE, INK, panels, save

KEYS, STEPS, PALE = 1000, 60, "#b5d3e6"
rng = np.random.default_rng(7)
slopes = rng.normal(size=KEYS)
inputs = rng.normal(size=(KEYS, STEPS))
targets = slopes[:, None] * inputs + rng.normal(size=(KEYS, STEPS))

model = nk.static_model(lambda w, u: w * u, jnp.zeros(()), nk.families.Gaussian(1.0))
learner = nk.online(model, prior_cov=1.0)


@jax.jit
def learn(inputs, targets):
    """Every key's slope and its standard deviation after each of its observations."""

    def one(inputs, targets):
        def step(state, row):
            new = learner.step(state, *row)[0]
            return new, (new.params, jnp.sqrt(learner.covariance(new)[0, 0]))

        return jax.lax.scan(step, learner.init(jnp.zeros(())), (inputs, targets))[1]

    return jax.vmap(one)(inputs, targets)


learned, sd = (np.asarray(part) for part in learn(inputs, targets))
figure, axes = panels(4, width=9.5, height=2.8, sharex=True, sharey=True)
shown = rng.permutation(KEYS)[:120]
for axis, count in zip(axes, (1, 5, 20, 60), strict=True):
    now, width = learned[:, count - 1], sd[:, count - 1]
    axis.plot([-3, 3], [-3, 3], color=INK, lw=0.8, ls=":")
    axis.errorbar(
        slopes[shown], now[shown], 1.645 * width[shown], fmt="o", ms=2.2, color=BLUE, ecolor=PALE, elinewidth=0.8
    )
    inside = np.mean(np.abs(now - slopes) <= 1.645 * width)
    print(f"{count} observations per key: {inside:.3f} of {KEYS:,} true slopes in their 90% interval")
    axis.set(title=f"{count} per key: {inside:.0%} inside", xlabel="true slope", aspect="equal")
axes[0].set(xlim=(-3, 3), ylim=(-3, 3))
axes[0].set_ylabel("learned slope, 90% interval")
save(figure)
