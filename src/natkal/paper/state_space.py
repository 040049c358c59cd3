"""Sec. 3: recurrent models y-hat_t = Phi(y-hat_{t-1}, theta, u_t), in the two forms the statements use."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.families.base import Family
from natkal.models import RecurrentModel, ravel
from natkal.typing import Array, Float


class StateSpace(NamedTuple):
    """`Phi(state, params, u)` is the next state, `h(state, params, u)` the mean parameter of the observation.

    In the paper's own setting h selects some entries of the state. The statements hold for any h, which may see only a
    part of the state and may depend on the parameters directly.
    """

    Phi: Callable[[Array, Array, Any], Array]
    h: Callable[[Array, Array, Any], Array]
    family: Family


class Derivatives(NamedTuple):
    """First derivatives of Phi or of h, with respect to theta and to the state."""

    params: Float[Array, "m p"]
    state: Float[Array, "m n"]


def transition_derivatives(space: StateSpace, state: Array, params: Array, u: Any) -> Derivatives:
    """dPhi/dtheta and dPhi/dy-hat at (y-hat_{t-1}, theta_{t-1}, u_t)."""
    by_state, by_params = jax.jacfwd(space.Phi, argnums=(0, 1))(state, params, u)
    return Derivatives(params=by_params, state=by_state)


def observation_derivatives(space: StateSpace, state: Array, params: Array, u: Any) -> Derivatives:
    """dh/dtheta and dh/dy-hat at (y-hat_t, theta_{t-1}, u_t): (0, a selection) in the paper's setting."""
    by_state, by_params = jax.jacrev(space.h, argnums=(0, 1))(state, params, u)
    return Derivatives(params=by_params, state=by_state)


def cell_and_readout(model: RecurrentModel) -> StateSpace:
    """The state is the model's own; h reads it, through weights that are parameters too: direct dependence."""

    def Phi(state: Array, params: Array, u: Any) -> Array:
        return model.system.step(model.unravel(params), state, u)

    def h(state: Array, params: Array, u: Any) -> Array:
        return model.family.mean(model.outputs.link(model.raw(model.unravel(params), state, u)))

    return StateSpace(Phi=Phi, h=h, family=model.family)


def whole_state(model: RecurrentModel) -> StateSpace:
    """Thm 12's setting: y-hat holds the model's state *and* the mean parameter, which is then a subset of it."""
    parts = cell_and_readout(model)
    n = model.system.state_size

    def Phi(state: Array, params: Array, u: Any) -> Array:
        moved = parts.Phi(state[:n], params, u)
        return jnp.concatenate([moved, parts.h(moved, params, u)])

    def h(state: Array, params: Array, u: Any) -> Array:
        return state[n:]

    return StateSpace(Phi=Phi, h=h, family=model.family)


def initial_state(model: RecurrentModel) -> Float[Array, " n"]:
    """y-hat_0 in `whole_state`: the model's own start, and zeros that nothing reads."""
    return jnp.concatenate([ravel(model.init_carry(model.params).state), jnp.zeros(model.family.dim)])


def with_initial_state(space: StateSpace, size: int) -> StateSpace:
    """theta+init = (theta, y-hat_0): the initial state as further parameters, which Phi and h do not read."""

    def Phi(state: Array, params: Array, u: Any) -> Array:
        return space.Phi(state, params[:size], u)

    def h(state: Array, params: Array, u: Any) -> Array:
        return space.h(state, params[:size], u)

    return StateSpace(Phi=Phi, h=h, family=space.family)


def initial_sensitivity(size: int, state_size: int) -> Float[Array, "n p"]:
    """G_0 = d y-hat_0 / d theta+init = (0, Id)."""
    return jnp.concatenate([jnp.zeros((state_size, size)), jnp.eye(state_size)], axis=1)
