"""Cells whose units read each other through a matrix: vanilla, linear, leaky, and gated."""

import abc
import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from natkal.models.recurrent.cells.base import UnitCell
from natkal.typing import Array, Float, Params

RECURRENT_GAIN = 0.8
"""Spectral radius of the recurrent weights at the start, about: below 1, the state forgets where it started."""


@dataclasses.dataclass(frozen=True, eq=False)
class MatrixCell(UnitCell):
    """`s' = combine(s, u W_in + b, s W_rec)`.

    `links` is a (units, units) boolean matrix, true where unit i reads unit j; None for all.
    """

    links: np.ndarray | None = None
    gates: ClassVar[int] = 1

    @abc.abstractmethod
    def combine(self, state: Any, driven: Float[Array, " z"], recurrent: Float[Array, " z"]) -> Any:
        """The next state from the state and its preactivations, `gates` numbers per unit in each."""

    def params(self, key: Array, inputs: int) -> Params:
        """Weights `N(0, 1/fan_in)`, the recurrent ones scaled to a spectral radius below 1, and zero biases."""
        width = self.gates * self.units
        drive_key, state_key = jax.random.split(key)
        return {
            "input": jax.random.normal(drive_key, (inputs, width)) / np.sqrt(inputs),
            "recurrent": RECURRENT_GAIN * jax.random.normal(state_key, (self.units, width)) / np.sqrt(self.units),
            "bias": jnp.zeros(width),
        }

    def advance(self, weights: Params, state: Any, inputs: Float[Array, " inputs"]) -> Any:
        """The next state."""
        return self.combine(state, *self._preactivations(weights, state, inputs))

    def _preactivations(self, weights: Params, state: Any, inputs: Array) -> tuple[Array, Array]:
        matrix = weights["recurrent"]
        if self.links is not None:
            matrix = jnp.where(np.tile(self.links.T, self.gates), matrix, 0)
        return inputs @ weights["input"] + weights["bias"], self.output(state) @ matrix

    # -- what sensitivities exploit -----------------------------------------------------------------------------------

    @property
    def wiring(self) -> np.ndarray:
        """Which unit (row) reads which (column); every unit reads itself."""
        everything = np.ones((self.units, self.units), bool)
        return everything if self.links is None else np.asarray(self.links) | np.eye(self.units, dtype=bool)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Weights that multiply one vector together; none where some of them do not count."""
        return (("input", "bias"), ("recurrent",)) if self.links is None else ()

    def factors(self, params: Params, state: Any, inputs: Array) -> tuple[tuple[dict[str, Array], Array], ...]:
        """For each group, the vectors its weights multiply, and d s' / d (their product), (n, gates units)."""
        inputs = jnp.atleast_1d(inputs)
        driven, recurrent = self._preactivations(params["cell"], state, inputs)

        def following(driven: Array, recurrent: Array) -> Array:
            return jnp.concatenate(jax.tree.leaves(self.combine(state, driven, recurrent)))

        by_drive, by_state = jax.jacfwd(following, argnums=(0, 1))(driven, recurrent)
        ones = jnp.ones((), driven.dtype)
        return ({"input": inputs, "bias": ones}, by_drive), ({"recurrent": self.output(state)}, by_state)


class Tanh(MatrixCell):
    """`s' = tanh(u W_in + b + s W_rec)`."""

    def combine(self, state: Any, driven: Array, recurrent: Array) -> Any:
        """Tanh of the sum."""
        return jnp.tanh(driven + recurrent)


class Linear(MatrixCell):
    """`s' = u W_in + b + s W_rec`: a linear state space model."""

    def combine(self, state: Any, driven: Array, recurrent: Array) -> Any:
        """The sum."""
        return driven + recurrent


@dataclasses.dataclass(frozen=True, eq=False)
class Leaky(MatrixCell):
    """`s' = (1 - leak) s + leak tanh(u W_in + b + s W_rec)`."""

    leak: float = 0.3

    def combine(self, state: Any, driven: Array, recurrent: Array) -> Any:
        """A step of length `leak` towards the tanh."""
        return (1 - self.leak) * state + self.leak * jnp.tanh(driven + recurrent)


class Gru(MatrixCell):
    """A gated recurrent unit whose reset gate acts after the recurrent product, so that each weight feeds one unit.

    r, z = sigmoid(..), c = tanh(driven_c + r * recurrent_c), s' = z s + (1 - z) c.
    """

    gates = 3

    def combine(self, state: Any, driven: Array, recurrent: Array) -> Any:
        """Reset, update, candidate."""
        (reset_in, update_in, new_in), (reset, update, new) = jnp.split(driven, 3), jnp.split(recurrent, 3)
        keep = jax.nn.sigmoid(update_in + update)
        candidate = jnp.tanh(new_in + jax.nn.sigmoid(reset_in + reset) * new)
        return keep * state + (1 - keep) * candidate


class Lstm(MatrixCell):
    """A long short-term memory: the state is (output, memory), and the forget gate starts open (bias 1)."""

    gates = 4

    def params(self, key: Array, inputs: int) -> Params:
        """As for every cell, but the forget gate's bias is 1."""
        weights = super().params(key, inputs)
        return {**weights, "bias": weights["bias"].at[self.units : 2 * self.units].set(1.0)}

    def state(self) -> Any:
        """No output, no memory."""
        return jnp.zeros(self.units), jnp.zeros(self.units)

    def combine(self, state: Any, driven: Array, recurrent: Array) -> Any:
        """Input, forget, output gates and the candidate."""
        enter, forget, leave, candidate = jnp.split(driven + recurrent, 4)
        memory = jax.nn.sigmoid(forget) * state[1] + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
        return jax.nn.sigmoid(leave) * jnp.tanh(memory), memory


def tanh(units: int, links: np.ndarray | None = None) -> Tanh:
    """The vanilla cell."""
    return Tanh(units, links)


def linear(units: int, links: np.ndarray | None = None) -> Linear:
    """A linear state space model."""
    return Linear(units, links)


def leaky(units: int, leak: float = 0.3, links: np.ndarray | None = None) -> Leaky:
    """Leaky integrator units."""
    if not 0 < leak <= 1:
        raise ValueError(f"leak: must lie in (0, 1], got {leak}")
    return Leaky(units, links, leak)


def gru(units: int, links: np.ndarray | None = None) -> Gru:
    """Gated recurrent units."""
    return Gru(units, links)


def lstm(units: int, links: np.ndarray | None = None) -> Lstm:
    """Long short-term memory."""
    return Lstm(units, links)
