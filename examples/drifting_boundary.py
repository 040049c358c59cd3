"""Two classes whose boundary turns while they are learned: nk.auto, which chooses its own memory, follows."""

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from picture import BLUE, INK, ORANGE, panels, save

STEPS, SHOWN = 2000, 120
LEVELS = [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1]
SHADES = ["#e8b48f", "#f2d3bd", "#faeee5", "#e3eef5", "#b5d3e6", "#83b5d6"]
rng = np.random.default_rng(0)
inputs = rng.normal(size=(STEPS, 2))
angle = np.linspace(0.0, np.pi, STEPS)  # half a turn


def side(points: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Positive on one side of a bent line that was turned by `angle`."""
    along = np.cos(angle) * points[:, 0] + np.sin(angle) * points[:, 1]
    across = -np.sin(angle) * points[:, 0] + np.cos(angle) * points[:, 1]
    return across - 0.5 * np.sin(2 * along)


targets = (side(inputs, angle) + 0.15 * rng.normal(size=STEPS) > 0).astype(int)
params = nk.mlp_params(jax.random.key(0), (2, 8, 1))
learner = nk.auto(nk.static_model(nk.mlp_apply, params, nk.families.Bernoulli()))
state = learner.init(params)
predict = jax.jit(jax.vmap(lambda state, point: learner.predict(state, point).mean[0], in_axes=(None, 0)))
ticks = np.linspace(-2.6, 2.6, 70)
mesh = np.stack(np.meshgrid(ticks, ticks), axis=-1)

figure, axes = panels(4, width=9.5, height=2.9, sharey=True)
seen, right = 0, []
for axis, count in zip(axes, (200, 800, 1400, 2000), strict=True):
    state, info = nk.run(learner, state, jnp.asarray(inputs[seen:count]), jnp.asarray(targets[seen:count]))
    right.append((info.prediction.mean[:, 0] > 0.5) == targets[seen:count])
    seen = count
    probability = np.asarray(predict(state, jnp.asarray(mesh.reshape(-1, 2)))).reshape(mesh.shape[:2])
    truth = side(mesh.reshape(-1, 2), angle[count - 1]).reshape(mesh.shape[:2])
    axis.contourf(ticks, ticks, probability, LEVELS, colors=SHADES)
    axis.contour(ticks, ticks, probability, [0.5], colors=[INK], linewidths=1.6)
    axis.contour(ticks, ticks, truth, [0.0], colors=[INK], linewidths=1.0, linestyles=":")
    last = slice(count - SHOWN, count)
    for label, colour in ((0, ORANGE), (1, BLUE)):
        chosen = inputs[last][targets[last] == label]
        axis.plot(chosen[:, 0], chosen[:, 1], "o", ms=2.6, color=colour, mec="white", mew=0.3)
    axis.set(title=f"after {count:,} points", aspect="equal", xlim=(-2.6, 2.6), ylim=(-2.6, 2.6), xticks=[], yticks=[])
figure.supxlabel("solid: the learned boundary.  dotted: the true one then.  dots: the last 120 points", fontsize=9)
print(f"accuracy before learning each point: {float(np.concatenate(right).mean()):.3f}")
print(f"observations remembered at the end: {float(info.memory[-1]):.0f}")
save(figure)
