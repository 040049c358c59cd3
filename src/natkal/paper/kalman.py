"""Def. 5: the extended Kalman filter, for observations from any exponential family."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.families.base import Family
from natkal.models import StaticModel
from natkal.paper.solve import solve
from natkal.typing import Array, Float, Int

Mean = Callable[[Float[Array, " p"], Any], Float[Array, " k"]]
"""`h(s, u)`, the mean parameter y-hat of the observation."""

Transition = Callable[[Float[Array, " p"], Any], Float[Array, " p"]]
"""`f(s, u)`, the state one step later."""

ProcessNoise = Any
"""Q: a matrix, a function of the step t that gives one, or None (or 0) for no noise."""


class KalmanState(NamedTuple):
    """The Gaussian N(s_t, P_t) that stands for the posterior after t observations."""

    estimate: Float[Array, " p"]
    cov: Float[Array, "p p"]
    steps: Int[Array, ""]


def stay(s: Float[Array, " p"], u: Any) -> Float[Array, " p"]:
    """f(s, u) = s: the static dynamics of Thm 2."""
    return s


def mean_function(model: StaticModel) -> Mean:
    """The paper's h(theta, u), on a flat parameter vector, of a static model."""
    return lambda params, u: model.mean(model.unravel(params), u)


# -- the quantities of Def. 5, each by its equation ---------------------------------------------------------------


def error(family: Family, mean: Float[Array, " k"], y: Any) -> Float[Array, " k"]:
    """E_t = T(y_t) - y-hat_t."""
    return family.sufficient_statistic(y) - mean


def noise_cov(family: Family, mean: Float[Array, " k"]) -> Float[Array, "k k"]:
    """R_t = Cov(T(y) | y-hat_t)   (eq. KFdefR)."""
    return family.cov(family.natural(mean))


def mean_jacobian(h: Mean, s: Float[Array, " p"], u: Any) -> Float[Array, "k p"]:
    """H_t = dh/ds at (s_{t|t-1}, u_t)   (eq. defH)."""
    return jax.jacrev(h)(s, u)


def transition_jacobian(f: Transition, s: Float[Array, " p"], u: Any) -> Float[Array, "p p"]:
    """F_{t-1} = df/ds at (s_{t-1}, u_t)   (eq. KFdefF)."""
    return jax.jacfwd(f)(s, u)


def process_noise(Q: ProcessNoise, t: Int[Array, ""], cov: Float[Array, "p p"]) -> Float[Array, "p p"]:
    """Q_t, in the shape of P."""
    if Q is None:
        return jnp.zeros_like(cov)
    noise = jnp.asarray(Q(t) if callable(Q) else Q, cov.dtype)
    if noise.ndim == 0:
        return noise * jnp.eye(cov.shape[0], dtype=cov.dtype)
    return noise


def gain(cov: Float[Array, "p p"], H: Float[Array, "k p"], R: Float[Array, "k k"]) -> Float[Array, "p k"]:
    """K_t = P_{t|t-1} H' (H P_{t|t-1} H' + R)^-1   (eq. KFdefK)."""
    return solve(H @ cov @ H.T + R, H @ cov.T).T


def posterior_cov(cov: Float[Array, "p p"], K: Float[Array, "p k"], H: Float[Array, "k p"]) -> Float[Array, "p p"]:
    """P_t = (I - K_t H_t) P_{t|t-1}   (eq. KFPupdate)."""
    return (jnp.eye(cov.shape[0], dtype=cov.dtype) - K @ H) @ cov


# -- the filter ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ExtendedKalmanFilter:
    """Def. 5: s_t = f(s_{t-1}, u_t) + N(0, Q_t), y-hat_t = h(s_t, u_t), y_t ~ p(y | y-hat_t).

    `f(s, u)` gives the next state, `h(s, u)` the mean parameter of `family`, `Q` is a matrix, a function of t, or None.

    >>> import jax.numpy as jnp
    >>> from natkal.families import Gaussian
    >>> kalman = ExtendedKalmanFilter(stay, lambda s, u: s * u, Gaussian(jnp.eye(1)))
    >>> state = kalman.step(kalman.init(jnp.zeros(1), jnp.eye(1)), jnp.ones(1), jnp.ones(1))
    >>> round(float(state.estimate[0]), 5), round(float(state.cov[0, 0]), 5)
    (0.5, 0.5)
    """

    f: Transition
    h: Mean
    family: Family
    Q: ProcessNoise = None

    def init(self, s0: Float[Array, " p"], P0: Float[Array, "p p"]) -> KalmanState:
        """The prior N(s_0, P_0)."""
        return KalmanState(estimate=s0, cov=P0, steps=jnp.zeros((), int))

    def transition(self, state: KalmanState, u: Any) -> KalmanState:
        """s_{t|t-1} = f(s_{t-1}, u_t), P_{t|t-1} = F P_{t-1} F' + Q_t   (eq. transP)."""
        F = transition_jacobian(self.f, state.estimate, u)
        Q = process_noise(self.Q, state.steps + 1, state.cov)
        return KalmanState(estimate=self.f(state.estimate, u), cov=F @ state.cov @ F.T + Q, steps=state.steps)

    def observe(self, state: KalmanState, u: Any, y: Any) -> KalmanState:
        """The observation step on a predicted state: E_t, R_t, H_t, K_t, then P_t and s_t."""
        mean = self.h(state.estimate, u)
        E = error(self.family, mean, y)
        R = noise_cov(self.family, mean)
        H = mean_jacobian(self.h, state.estimate, u)
        K = gain(state.cov, H, R)
        return KalmanState(estimate=state.estimate + K @ E, cov=posterior_cov(state.cov, K, H), steps=state.steps + 1)

    def step(self, state: KalmanState, u: Any, y: Any) -> KalmanState:
        """Transition, then observation: (s_{t-1}, P_{t-1}) to (s_t, P_t)."""
        return self.observe(self.transition(state, u), u, y)
