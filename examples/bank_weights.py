"""Four filters that forget at different rates, mixed by likelihood: the weights follow what the stream does."""

import jax.numpy as jnp
import numpy as np

import natkal as nk
from picture import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, panels, save

FADINGS, PHASE = (0.0, 0.01, 0.05, 0.2), 700
COLOURS = (BLUE, GREEN, ORANGE, PURPLE)
rng = np.random.default_rng(8)
still = np.zeros(PHASE)
wandering = np.cumsum(0.3 * rng.normal(size=PHASE) + 0.01)
slope = np.concatenate([still, wandering, np.full(PHASE, wandering[-1])])
inputs = rng.normal(size=len(slope))
targets = slope * inputs + rng.normal(size=len(slope))

model = nk.static_model(lambda w, u: w * u, jnp.zeros(()), nk.families.Gaussian(1.0))
bank = nk.bank(lambda fading: nk.online(model, prior_cov=10.0, rates=nk.fading(fading)), grid={"fading": FADINGS})
_, info = nk.run(bank, bank.init(jnp.zeros(())), jnp.asarray(inputs), jnp.asarray(targets))
weights = np.asarray(info.prediction.weights[:, :, 0])
alone = -np.asarray(info.expert_log_prob[:, :, 0])
print(f"log loss of the bank {-float(info.log_prob.mean()):.3f}")
for fading, loss in zip(FADINGS, alone.mean(axis=0), strict=True):
    print(f"of its member with fading {fading:g} alone {loss:.3f}")

figure, axes = panels(2, width=9.5, height=3.0, gridspec_kw={"width_ratios": [1, 1.5]})
axes[0].plot(slope, color=INK, lw=1.2)
axes[0].set(title="the slope to be learned", xlabel="observation", xticks=range(0, 2101, 700))
axes[1].stackplot(np.arange(len(slope)), weights.T, colors=COLOURS, alpha=0.85, lw=0)
axes[1].set(
    title="weight of each filter in the mixture",
    xlabel="observation",
    ylim=(0, 1),
    xlim=(0, len(slope)),
    xticks=range(0, 2101, 700),
)
for axis in axes:
    for edge in (PHASE, 2 * PHASE):
        axis.axvline(edge, color=GREY, lw=0.8)
for height, fading, colour in zip((0.1, 0.35, 0.6, 0.85), FADINGS, COLOURS, strict=True):
    axes[1].text(1.02, height, f"forgets {fading:g}", color=colour, transform=axes[1].transAxes)
save(figure)
