"""A learning rate is a rate of forgetting: three schedules, their fading, and one learner run both ways."""

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from natkal.paper.fading import FadingKalmanFilter
from picture import BLUE, GREEN, INK, ORANGE, panels, save

jax.config.update("jax_enable_x64", True)
STEPS = 200
SCHEDULES = {
    "η = 1/(t+1)": (nk.paper.dictionary.inverse_time(1), BLUE, (22, 0.0062)),
    "η = 0.05": (nk.paper.dictionary.constant(0.05), ORANGE, (112, 0.058)),
    "η = 0.5/√(t+25)": (nk.paper.dictionary.inverse_sqrt(25, 0.5), GREEN, (62, 0.025)),
}
rng = np.random.default_rng(3)
inputs = jnp.asarray(rng.normal(size=(STEPS, 2)))
turned = np.where(np.arange(STEPS) < 100, 1.0, -1.0)  # the first weight changes its sign half way
logits = np.stack([2 * turned, np.ones(STEPS)], axis=1) * np.asarray(inputs)
targets = jnp.asarray((rng.uniform(size=STEPS) < 1 / (1 + np.exp(-logits.sum(axis=1)))).astype(int))
family = nk.families.Bernoulli()


def mean(w, u):
    """The probability of a 1."""
    return jax.nn.sigmoid(w @ u)[None]


def path(learner, start, weights) -> np.ndarray:
    """The first weight after each observation."""

    def step(state, row):
        new = learner.step(state, *row)
        return new, weights(new)[0]

    return np.asarray(jax.jit(lambda start: jax.lax.scan(step, start, (inputs, targets))[1])(start))


def by_rate(eta) -> np.ndarray:
    """Def. 1: natural gradient, J_0 = eta_0 / prior."""
    learner = nk.paper.natural_gradient(mean, family, eta)
    return path(learner, learner.init(jnp.zeros(2), eta(0.0) * jnp.eye(2)), lambda state: state.params)


def by_fading(lambdas) -> np.ndarray:
    """Def. 5 with fading memory: Kalman filter, P_0 = 1."""
    learner = FadingKalmanFilter(mean, family, lambda t: lambdas[t - 1])
    return path(learner, learner.init(jnp.zeros(2), jnp.eye(2)), lambda state: state.estimate)


figure, (rate_axis, fading_axis, path_axis) = panels(3, width=9.5, height=3.0)
times = np.arange(STEPS + 1)
for name, (eta, colour, label_at) in SCHEDULES.items():
    etas = jnp.asarray([eta(float(t)) for t in times])
    lambdas = nk.paper.dictionary.fading_from_learning_rate(etas)
    rate_axis.plot(times[1:], etas[1:], color=colour)
    fading_axis.plot(times[1:], lambdas, color=colour)
    one, other = by_rate(eta), by_fading(lambdas)
    print(f"{name}: largest difference between the two runs {np.abs(one - other).max():.0e}")
    path_axis.plot(times[1:], one, color=colour, lw=1.2)
    path_axis.plot(times[5::10], other[4::10], "o", color=colour, ms=3.5, mfc="white")
    rate_axis.text(*label_at, name, color=colour, fontsize=9)
rate_axis.set(title="natural gradient: learning rate η", xlabel="observation", yscale="log")
fading_axis.set(title="Kalman filter: fading λ", xlabel="observation", ylim=(-0.004, 0.085))
path_axis.set(title="one weight, run both ways", xlabel="observation")
path_axis.text(2, -1.35, "lines: η.  circles: λ", color=INK, fontsize=9)
save(figure)
