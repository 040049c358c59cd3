"""Def. 11 and Thm 12: real-time recurrent learning, and its natural gradient with state correction."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.paper.fisher import change_parameters
from natkal.paper.gradient import log_likelihood
from natkal.paper.schedules import Rate, as_schedule
from natkal.paper.solve import solve
from natkal.paper.state_space import StateSpace, transition_derivatives
from natkal.typing import Array, Float, Int


class RtrlState(NamedTuple):
    """theta_t, y-hat_t, G_t = d y-hat_t / d theta, and t."""

    params: Float[Array, " p"]
    state: Float[Array, " n"]
    sensitivity: Float[Array, "n p"]
    steps: Int[Array, ""]


class NaturalRtrlState(NamedTuple):
    """The same with the Fisher matrix J_t."""

    params: Float[Array, " p"]
    state: Float[Array, " n"]
    sensitivity: Float[Array, "n p"]
    fisher: Float[Array, "p p"]
    steps: Int[Array, ""]


# -- the equations ------------------------------------------------------------------------------------------------


def advance_sensitivity(
    space: StateSpace, state: Float[Array, " n"], sensitivity: Float[Array, "n p"], params: Float[Array, " p"], u: Any
) -> Float[Array, "n p"]:
    """G_t = dPhi/dtheta_{t-1} + dPhi/dy-hat_{t-1} G_{t-1}   (eq. rtrl)."""
    by = transition_derivatives(space, state, params, u)
    return by.params + by.state @ sensitivity


def estimated_gradient(
    space: StateSpace,
    state: Float[Array, " n"],
    sensitivity: Float[Array, "n p"],
    params: Float[Array, " p"],
    u: Any,
    y: Any,
) -> Float[Array, " p"]:
    """g_t(y) = dl_t(y)/dy-hat_t G_t   (eq. gradlossestim), plus dl_t/dtheta where h depends on theta directly."""

    def loss(state: Array, params: Array) -> Array:
        return -log_likelihood(space.family, space.h(state, params, u), y)

    by_state, by_params = jax.grad(loss, argnums=(0, 1))(state, params)
    return by_params + by_state @ sensitivity


def estimated_fisher(
    space: StateSpace, state: Float[Array, " n"], sensitivity: Float[Array, "n p"], params: Float[Array, " p"], u: Any
) -> Float[Array, "p p"]:
    """E_{y ~ p(y | y-hat_t)} [g_t(y)^2], from the covariance of T in natural parameters: no R^-1."""

    def natural(state: Array, params: Array) -> Array:
        return space.family.natural(space.h(state, params, u))

    by_state, by_params = jax.jacrev(natural, argnums=(0, 1))(state, params)
    return change_parameters(space.family.cov(natural(state, params)), by_params + by_state @ sensitivity)


# -- the algorithms -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Rtrl:
    """Def. 11 as `init` and `step`; build it with `rtrl`."""

    space: StateSpace
    learning_rate: Callable[[Any], Any]

    def init(self, params: Float[Array, " p"], state: Float[Array, " n"]) -> RtrlState:
        """theta_0, y-hat_0 and G_0 = 0."""
        return RtrlState(
            params=params, state=state, sensitivity=jnp.zeros((state.size, params.size)), steps=jnp.zeros((), int)
        )

    def step(self, before: RtrlState, u: Any, y: Any) -> RtrlState:
        """y-hat_t, G_t, then theta_t = theta_{t-1} - eta_t g_t'."""
        t = before.steps + 1
        state = self.space.Phi(before.state, before.params, u)
        sensitivity = advance_sensitivity(self.space, before.state, before.sensitivity, before.params, u)
        gradient = estimated_gradient(self.space, state, sensitivity, before.params, u, y)
        return RtrlState(
            params=before.params - self.learning_rate(t) * gradient, state=state, sensitivity=sensitivity, steps=t
        )


@dataclasses.dataclass(frozen=True)
class NaturalGradientRtrl:
    """The second algorithm of Thm 12 as `init` and `step`; build it with `natural_gradient_rtrl`."""

    space: StateSpace
    learning_rate: Callable[[Any], Any]

    def init(
        self,
        params: Float[Array, " p"],
        state: Float[Array, " n"],
        fisher: Float[Array, "p p"],
        sensitivity: Float[Array, "n p"] | None = None,
    ) -> NaturalRtrlState:
        """theta_0, y-hat_0, J_0 = eta_0 (P_0)^-1, and G_0 = 0 unless y-hat_0 depends on theta (theta+init)."""
        start = jnp.zeros((state.size, params.size)) if sensitivity is None else sensitivity
        return NaturalRtrlState(params=params, state=state, sensitivity=start, fisher=fisher, steps=jnp.zeros((), int))

    def step(self, before: NaturalRtrlState, u: Any, y: Any) -> NaturalRtrlState:
        """The transition of y-hat, G, J (eq. recJupdate), then theta and the state (eq. jointstateupdate)."""
        t = before.steps + 1
        eta = self.learning_rate(t)
        predicted = self.space.Phi(before.state, before.params, u)
        sensitivity = advance_sensitivity(self.space, before.state, before.sensitivity, before.params, u)
        added = estimated_fisher(self.space, predicted, sensitivity, before.params, u)
        fisher = (1 - eta) * before.fisher + eta * added
        gradient = estimated_gradient(self.space, predicted, sensitivity, before.params, u, y)
        delta = solve(fisher, gradient)
        return NaturalRtrlState(
            params=before.params - eta * delta,
            state=predicted - eta * sensitivity @ delta,
            sensitivity=sensitivity,
            fisher=fisher,
            steps=t,
        )


def rtrl(space: StateSpace, learning_rate: Rate) -> Rtrl:
    """Real-time recurrent learning (Def. 11); `learning_rate` is a number in (0, 1] or a function of t = 1, 2, .."""
    return Rtrl(space, as_schedule("learning_rate", learning_rate))


def natural_gradient_rtrl(space: StateSpace, learning_rate: Rate) -> NaturalGradientRtrl:
    """RTRL + natural gradient + state correction: Thm 12 at 1/(t+1), and by fading memory at any rate."""
    return NaturalGradientRtrl(space, as_schedule("learning_rate", learning_rate))
