"""Thm 12: the extended Kalman filter on the pair (theta, y-hat), with fading memory for any learning rate."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from natkal.paper.fading import FadingKalmanFilter
from natkal.paper.kalman import ProcessNoise
from natkal.paper.state_space import StateSpace
from natkal.typing import Array, Float


class Blocks(NamedTuple):
    """The covariance of (theta, y-hat) by blocks: P^theta, P^{y-hat theta}, P^{y-hat}."""

    params: Float[Array, "p p"]
    cross: Float[Array, "n p"]
    state: Float[Array, "n n"]


def joint_kalman(space: StateSpace, size: int, fading: Any = 0.0, Q: ProcessNoise = None) -> FadingKalmanFilter:
    """Def. 5 on s = (theta, y-hat) with f = (Id, Phi); `size` is dim theta, `Q` the noise on the pair, None in Thm 12.

    `fading` gives the statement that the paper omits: with 1 - lambda_t = eta_{t-1}/eta_t - eta_{t-1} on all of P,
    Thm 12 holds at any rate eta_t. For P_{t-1}/(1 - lambda_t) keeps the form (eq. kalmancov) and leaves G as it is.
    """

    def f(pair: Float[Array, " s"], u: Any) -> Float[Array, " s"]:
        params, state = pair[:size], pair[size:]
        return jnp.concatenate([params, space.Phi(state, params, u)])

    def h(pair: Float[Array, " s"], u: Any) -> Float[Array, " k"]:
        return space.h(pair[size:], pair[:size], u)

    return FadingKalmanFilter(h, space.family, fading, f=f, Q=Q)


def blocks(cov: Float[Array, "s s"], size: int) -> Blocks:
    """The blocks of a covariance of (theta, y-hat)."""
    return Blocks(params=cov[:size, :size], cross=cov[size:, :size], state=cov[size:, size:])


def covariance_from_fisher(
    fisher_inverse: Float[Array, "p p"], sensitivity: Float[Array, "n p"], learning_rate: Float[Array, ""]
) -> Float[Array, "s s"]:
    """P_t = eta_t [[J^-1, J^-1 G'], [G J^-1, G J^-1 G']]   (eq. kalmancov)."""
    lift = jnp.concatenate([jnp.eye(fisher_inverse.shape[0]), sensitivity])
    return learning_rate * lift @ fisher_inverse @ lift.T
