"""Sec. 3.2, third possibility: the dual filter, one for theta given y-hat and one for y-hat given theta."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from natkal.paper.kalman import error, gain, noise_cov, posterior_cov
from natkal.paper.state_space import StateSpace, observation_derivatives, transition_derivatives
from natkal.typing import Array, Float


class DualState(NamedTuple):
    """N(theta, P_theta) for the parameters; N(y-hat, W) for the state given them; G couples the two."""

    params: Float[Array, " p"]
    cov: Float[Array, "p p"]
    state: Float[Array, " n"]
    state_cov: Float[Array, "n n"]
    sensitivity: Float[Array, "n p"]


@dataclasses.dataclass(frozen=True)
class DualKalman:
    """Two filters of Def. 5 with the RTRL terms between them; build it with `dual_kalman`."""

    space: StateSpace
    Q: Float[Array, "n n"] | None = None

    def init(
        self, params: Float[Array, " p"], cov: Float[Array, "p p"], state: Float[Array, " n"], W: Float[Array, "n n"]
    ) -> DualState:
        """Independent priors on theta and y-hat_0."""
        return DualState(
            params=params, cov=cov, state=state, state_cov=W, sensitivity=jnp.zeros((state.size, params.size))
        )

    def step(self, before: DualState, u: Any, y: Any) -> DualState:
        """The state filter predicts; the parameter filter learns, with noise R + H W H'; the state filter follows."""
        by = transition_derivatives(self.space, before.state, before.params, u)
        state = self.space.Phi(before.state, before.params, u)
        W = by.state @ before.state_cov @ by.state.T
        W = W if self.Q is None else W + self.Q
        G = by.params + by.state @ before.sensitivity

        mean = self.space.h(state, before.params, u)
        E, R = error(self.space.family, mean, y), noise_cov(self.space.family, mean)
        H = observation_derivatives(self.space, state, before.params, u)
        total = H.params + H.state @ G  # y-hat as a function of theta, through the state too

        K_theta = gain(before.cov, total, R + H.state @ W @ H.state.T)
        delta = K_theta @ E
        K_state = gain(W, H.state, R)
        return DualState(
            params=before.params + delta,
            cov=posterior_cov(before.cov, K_theta, total),
            state=state + G @ delta + K_state @ (E - total @ delta),
            state_cov=posterior_cov(W, K_state, H.state),
            sensitivity=G - K_state @ total,
        )


def dual_kalman(space: StateSpace, Q: Float[Array, "n n"] | None = None) -> DualKalman:
    """The dual filter, coupled as in Lemmas 13 and 14: the joint filter, at any W. `Q` is noise on the state."""
    return DualKalman(space, Q)
