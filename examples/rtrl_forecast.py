"""A recurrent network learns a chaotic series online by RTRL, then rolls forward and says how sure it is."""

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.recurrent.series import mackey_glass

import natkal as nk
from picture import BLUE, INK, ORANGE, panels, save

AHEAD, SHOWN = 60, 60
NOISE = 0.02
values = np.asarray(mackey_glass(1500).targets)
learned = len(values) - AHEAD

model = nk.recurrent_network(jax.random.key(0), nk.cells.tanh(24), inputs=1, family=nk.families.Gaussian(NOISE**2))
learner = nk.online(model, prior_cov=nk.paper.dictionary.fan_in_prior(model.params), rates=nk.fading(3e-4))
state = learner.init(model.params)
state, info = nk.run(learner, state, jnp.asarray(values[: learned - 1, None]), jnp.asarray(values[1:learned]))
ahead = learner.forecast(state, jnp.asarray(values[learned - 1 : learned]), AHEAD, feed=lambda mean: mean)
error = np.asarray(info.prediction.mean[:, 0]) - values[1:learned]
print(f"one step ahead, last 300 points: root mean squared error {np.sqrt(np.mean(error[-300:] ** 2)):.3f}")

figure, (axis,) = panels(1, width=9.5, height=3.0)
past, future = np.arange(-SHOWN, 0), np.arange(AHEAD)
axis.plot(past, values[learned - SHOWN : learned], color=INK, lw=1.4)
axis.plot(past, info.prediction.mean[-SHOWN:, 0], ".", color=ORANGE, ms=4)
mean, sd = np.asarray(ahead.mean[:, 0]), np.sqrt(np.asarray(ahead.cov[:, 0, 0]))
axis.fill_between(future, mean - 1.645 * sd, mean + 1.645 * sd, color=BLUE, alpha=0.25, lw=0)
axis.plot(future, mean, color=BLUE, lw=1.6)
axis.plot(future, values[learned:], "o", color=INK, mfc="white", ms=3, mew=0.8)
inside = np.abs(values[learned:] - mean) <= 1.645 * sd
print(f"forecast: {inside.sum()} of {AHEAD} points in the 90% band; widest half-width {1.645 * sd.max():.2f}")
axis.axvline(-0.5, color=INK, lw=0.6)
axis.set(xlabel="steps from now", ylabel="standardised value", xlim=(-SHOWN, AHEAD - 1), ylim=(-3.4, 3.4))
axis.text(-1.5, 2.75, "line: the series.  dots: predicted before learning", ha="right", color=ORANGE)
axis.text(0.5, 2.75, "forecast with its 90% band", color=BLUE)
axis.text(AHEAD - 1, -2.95, "circles: what came", ha="right", color=INK)
save(figure)
