"""Nobody told nk.auto how noisy the stream is, nor that the noise would change: its intervals stay calibrated."""

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from picture import BLUE, GREY, INK, panels, save

PHASE, LEVELS = 800, (1.0, 4.0, 0.5)
rng = np.random.default_rng(5)
sd = np.repeat(LEVELS, PHASE)
inputs = rng.uniform(-2, 2, size=(len(sd), 2))
signal = 40 + 6 * np.sin(inputs[:, 0]) * inputs[:, 1]
targets = signal + sd * rng.normal(size=len(sd))

params = nk.mlp_params(jax.random.key(0), (2, 12, 1))
learner = nk.auto(nk.static_model(nk.mlp_apply, params, nk.families.Gaussian(1.0)), members=6)
_, info = nk.run(learner, learner.init(params), jnp.asarray(inputs), jnp.asarray(targets))
low, high = (np.asarray(end) for end in learner.interval(info.prediction, 0.9))
for phase, level in enumerate(LEVELS):
    part = slice(phase * PHASE, (phase + 1) * PHASE)
    inside = np.mean((low[part] <= targets[part]) & (targets[part] <= high[part]))
    print(f"noise {level:g}: {inside:.3f} of the targets in their 90% interval")
share = np.asarray(learner.cdf(info.prediction, jnp.asarray(targets)))[100:]

figure, axes = panels(2, width=9.5, height=3.0, gridspec_kw={"width_ratios": [2, 1]})
steps = np.arange(len(sd))
axes[0].plot(steps, targets - signal, ".", color=GREY, ms=2)
width = np.convolve((high - low) / 2, np.ones(20) / 20, mode="same")
axes[0].plot(steps[100:], width[100:], color=BLUE, lw=1.6)
axes[0].plot(steps[100:], -width[100:], color=BLUE, lw=1.6)
axes[0].plot(steps, 1.645 * sd, color=INK, lw=1, ls=":")
axes[0].plot(steps, -1.645 * sd, color=INK, lw=1, ls=":")
axes[0].set(
    title="noise around the signal, and half the 90% interval",
    xlabel="observation",
    ylim=(-14, 14),
    xlim=(0, 2400),
    xticks=range(0, 2401, 800),
)
axes[0].text(20, 12, "line: predicted.  dotted: truth", color=BLUE, fontsize=9)
axes[1].hist(share, bins=10, range=(0, 1), density=True, color=BLUE, alpha=0.6, rwidth=0.92)
axes[1].axhline(1.0, color=INK, lw=1, ls=":")
axes[1].set(title="where targets fell in their law", xlabel="predicted P(Y ≤ y)", yticks=[0, 1], ylim=(0, 1.5))
axes[1].text(0.5, 1.25, "flat: calibrated", ha="center", color=BLUE, fontsize=9)
save(figure)
