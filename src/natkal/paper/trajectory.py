"""Sec. 3.2, first possibility: a filter on theta alone, y-hat_t being a function of theta via the trajectory."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.paper.kalman import error, gain, noise_cov, posterior_cov
from natkal.paper.state_space import StateSpace, observation_derivatives
from natkal.typing import Array, Float, Int


class TrajectoryState(NamedTuple):
    """N(theta, P), the states before each of the last k steps and the inputs of those steps, oldest first."""

    params: Float[Array, " p"]
    cov: Float[Array, "p p"]
    states: Float[Array, "k n"]
    inputs: Any
    state: Float[Array, " n"]
    steps: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class TrajectoryKalman:
    """Def. 5 on theta, with d y-hat_t / d theta by back-propagation through the last `window` steps.

    With `recompute` the window is run again with the new theta at every step, as the paper says one should in
    principle; without, the past states stay as they were, as it says one does in practice.
    """

    space: StateSpace
    window: int
    recompute: bool = False

    def init(self, params: Array, cov: Array, state: Array, first_input: Any) -> TrajectoryState:
        """The prior, an empty past, and the shape of an input."""
        return TrajectoryState(
            params=params,
            cov=cov,
            states=jnp.broadcast_to(state, (self.window, state.size)),
            inputs=jax.tree.map(
                lambda leaf: jnp.zeros((self.window, *jnp.shape(leaf)), jnp.result_type(leaf)), first_input
            ),
            state=state,
            steps=jnp.zeros((), int),
        )

    def run_window(self, params: Array, past: TrajectoryState) -> Float[Array, " n"]:
        """y-hat_t as a function of theta, from the state before the window."""
        valid = jnp.arange(self.window) >= self.window - past.steps

        def step(state: Array, row: Any) -> tuple[Array, None]:
            stored, u, is_there = row
            if not self.recompute:
                # The stored value, with the derivative of the recomputed one.
                state = stored + (state - jax.lax.stop_gradient(state))
            return jnp.where(is_there, self.space.Phi(state, params, u), state), None

        return jax.lax.scan(step, past.states[0], (past.states, past.inputs, valid))[0]

    def step(self, before: TrajectoryState, u: Any, y: Any) -> TrajectoryState:
        """Run, differentiate, observe."""
        past = TrajectoryState(
            params=before.params,
            cov=before.cov,
            states=jnp.concatenate([before.states[1:], before.state[None]]),
            inputs=jax.tree.map(lambda old, new: jnp.concatenate([old[1:], new[None]]), before.inputs, u),
            state=before.state,
            steps=before.steps + 1,
        )
        state = self.run_window(before.params, past)
        sensitivity = jax.jacrev(self.run_window)(before.params, past)
        mean = self.space.h(state, before.params, u)
        by = observation_derivatives(self.space, state, before.params, u)
        H = by.params + by.state @ sensitivity
        K = gain(before.cov, H, noise_cov(self.space.family, mean))
        return TrajectoryState(
            params=before.params + K @ error(self.space.family, mean, y),
            cov=posterior_cov(before.cov, K, H),
            states=past.states,
            inputs=past.inputs,
            state=state,
            steps=past.steps,
        )


def trajectory_kalman(space: StateSpace, window: int, recompute: bool = False) -> TrajectoryKalman:
    """A filter on theta whose derivative looks `window` steps back."""
    if window < 1:
        raise ValueError(f"window: must be at least 1, got {window}")
    return TrajectoryKalman(space, window, recompute)
