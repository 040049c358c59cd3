"""A bandit of three arms whose rewards change in the middle: shares of the arms, and the reward beside its best."""

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from picture import BLUE, GREEN, GREY, INK, ORANGE, panels, save

ROWS, WINDOW = 3000, 100
COLOURS = (BLUE, GREEN, ORANGE)
rng = np.random.default_rng(1)
contexts = np.concatenate([np.ones((ROWS, 1)), rng.normal(size=(ROWS, 2))], axis=1)
before = np.array([[0.5, 1.5, 0.0], [0.0, 0.0, 1.5], [-0.5, -1.5, -1.0]])
weights = np.where(np.arange(ROWS)[:, None, None] < ROWS // 2, before[None], before[None, ::-1])
chances = 1 / (1 + np.exp(-np.einsum("nkd,nd->nk", weights, contexts)))
paid = (rng.random(chances.shape) < chances).astype(np.float32)

bandit = nk.bandit(nk.static_model(lambda w, u: w @ u, jnp.zeros((3, 3)), nk.families.Bernoulli()), arms=3)


@jax.jit
def run(state, contexts, paid, keys):
    """All rows, one after the other."""

    def turn(state, row):
        context, rewards, key = row
        decision = bandit.act(state, context, key)
        return bandit.learn(state, context, decision.arm, rewards[decision.arm]), (decision.arm, decision.probability)

    return jax.lax.scan(turn, state, (contexts, paid, keys))


_, (arms, probabilities) = run(
    bandit.init(), jnp.asarray(contexts, jnp.float32), jnp.asarray(paid), jax.random.split(jax.random.key(0), ROWS)
)
arms = np.asarray(arms)
expected = chances[np.arange(ROWS), arms]
print(
    f"mean expected reward {expected.mean():.3f}, of the best arm {chances.max(axis=1).mean():.3f}, at random "
    f"{chances.mean():.3f}"
)


def smooth(values):
    """The mean over a moving window."""
    return np.convolve(values, np.ones(WINDOW) / WINDOW, mode="valid")


figure, axes = panels(2, width=9.5, height=3.0)
rows = np.arange(ROWS - WINDOW + 1) + WINDOW
shares = np.stack([smooth(arms == arm) for arm in range(3)])
axes[0].stackplot(rows, shares, colors=COLOURS, alpha=0.85, lw=0)
axes[0].set(title="share of each arm", xlabel="decision", ylim=(0, 1), xlim=(rows[0], ROWS))
axes[1].plot(rows, smooth(chances.max(axis=1)), color=INK, lw=1.2, label="the best arm")
axes[1].plot(rows, smooth(expected), color=BLUE, lw=1.2, label="the bandit")
axes[1].plot(rows, smooth(chances.mean(axis=1)), color=GREY, lw=1.2, label="at random")
axes[1].set(title="expected reward", xlabel="decision", xlim=(rows[0], ROWS))
axes[1].legend(frameon=False)
for axis in axes:
    axis.axvline(ROWS // 2, color=GREY, lw=0.8)
save(figure)
