"""Counts that vary more than a Poisson law allows: nk.auto learns by how much, a plain Poisson filter is too sure."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import poisson

import natkal as nk
from picture import BLUE, INK, ORANGE, panels, save

STEPS, DISPERSION = 1200, 3.0
rng = np.random.default_rng(6)
hour = np.arange(STEPS) % 24
inputs = np.stack([np.sin(2 * np.pi * hour / 24), np.cos(2 * np.pi * hour / 24)], axis=1)
rate = np.exp(2.5 + inputs @ np.array([0.8, -0.6]))
targets = rng.poisson(rate * rng.gamma(DISPERSION, 1 / DISPERSION, size=STEPS))

params = {"weight": jnp.zeros(2), "bias": jnp.zeros(())}
model = nk.static_model(lambda w, u: w["weight"] @ u + w["bias"], params, nk.families.Poisson())
learner = nk.auto(model, members=6)
_, info = nk.run(learner, learner.init(params), jnp.asarray(inputs), jnp.asarray(targets))
at_most = np.asarray(learner.cdf(info.prediction, jnp.asarray(targets)))
below = np.asarray(learner.cdf(info.prediction, jnp.asarray(targets) - 1))
inside = (at_most >= 0.05) & (below < 0.95)

plain = nk.online(model, prior_cov=10.0)
_, alone = nk.run(plain, plain.init(params), jnp.asarray(inputs), jnp.asarray(targets))
too_low, too_high = poisson.ppf(0.05, alone.prediction.mean[:, 0]), poisson.ppf(0.95, alone.prediction.mean[:, 0])
inside_alone = (too_low <= targets) & (targets <= too_high)
print(f"in the 90% interval: nk.auto {inside[100:].mean():.3f}, Poisson filter {inside_alone[100:].mean():.3f}")
print(f"log loss per count: nk.auto {-info.log_prob.mean():.3f}, Poisson filter {-alone.log_prob.mean():.3f}")

figure, (axis,) = panels(1, width=9.5, height=3.0)
days = slice(STEPS - 5 * 24, STEPS)
steps = np.arange(5 * 24)
shown = jax.tree.map(lambda leaf: leaf[days], info.prediction)
low, high = (np.asarray(end) for end in learner.interval(shown, 0.9))
axis.fill_between(steps, low, high, step="mid", color=BLUE, alpha=0.25, lw=0)
axis.step(steps, too_low[days], where="mid", color=ORANGE, lw=1)
axis.step(steps, too_high[days], where="mid", color=ORANGE, lw=1)
axis.plot(steps, targets[days], "o", color=INK, ms=3)
axis.set(xlabel="hour", ylabel="count", xlim=(0, 119), ylim=(0, 95), xticks=range(0, 120, 24))
axis.text(1, 88, f"nk.auto's 90% interval: {inside[100:].mean():.0%} of the counts inside", color=BLUE)
axis.text(1, 80, f"a Poisson filter's: {inside_alone[100:].mean():.0%}", color=ORANGE)
save(figure)
