"""Diagonal cells: no unit reads another, so that d s / d theta is a vector for each unit; `diagonal` is exact there."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.models.recurrent.cells.base import UnitCell
from natkal.typing import Array, Float, Params

MEMORY = 1000.0
"""The longest time constant at the start, in steps, unless told otherwise.

One input among noise, t steps later, stands out of the state by sqrt(2/c) exp(-t/c) for a time constant of c. This is
largest at c = 2 t. Beyond it falls as a power of c, below exponentially: a constant that is too long costs little.
"""


class Diagonal(UnitCell):
    """`s'_i = a_i s_i + (1 - a_i) tanh(u W_in + b)_i` with learned `a = sigmoid(decay)`."""

    def params(self, key: Array, inputs: int) -> Params:
        """Memories from about one step to about a hundred."""
        return {
            "input": jax.random.normal(key, (inputs, self.units)) / np.sqrt(inputs),
            "bias": jnp.zeros(self.units),
            "decay": jnp.linspace(-2.0, 4.6, self.units),
        }

    def advance(self, weights: Params, state: Any, inputs: Float[Array, " inputs"]) -> Any:
        """A leaky unit with its own learned leak."""
        keep = jax.nn.sigmoid(weights["decay"])
        return keep * state + (1 - keep) * jnp.tanh(inputs @ weights["input"] + weights["bias"])

    @property
    def wiring(self) -> np.ndarray:
        """Every unit reads itself alone."""
        return np.eye(self.units, dtype=bool)


class Complex(NamedTuple):
    """A complex number for each unit, as two real ones."""

    real: Float[Array, " units"]
    imaginary: Float[Array, " units"]


@dataclasses.dataclass(frozen=True, eq=False)
class Rotating(UnitCell):
    """`x' = radius e^(i phase) x + sqrt(1 - radius^2) drive` for a complex x, in real arithmetic.

    The radius is below 1 whatever the parameters are, so the state forgets where it started. The square root keeps the
    state's variance at that of the drive. The phase is `phases + turn / time constant`, with fixed `phases` and a
    learned `turn`: a mode that remembers t steps tells phases apart that differ by 1/t, so that `turn` matters alike in
    every unit, and one prior variance suits them all.
    """

    memory: float = MEMORY

    @property
    def width(self) -> int:
        """Both parts of every unit."""
        return 2 * self.units

    def state(self) -> Complex:
        """Every unit at rest."""
        return Complex(real=jnp.zeros(self.units), imaginary=jnp.zeros(self.units))

    def output(self, state: Complex) -> Float[Array, " width"]:
        """Both parts."""
        return jnp.concatenate([state.real, state.imaginary])

    @property
    def wiring(self) -> np.ndarray:
        """Every unit reads itself alone."""
        return np.eye(self.units, dtype=bool)

    @property
    def time_constants(self) -> np.ndarray:
        """At the start, in steps: evenly spread between 1 and `memory` on a logarithmic scale."""
        return np.geomspace(1.0, self.memory, self.units)

    @property
    def phases(self) -> np.ndarray:
        """In (0, pi), the golden-ratio sequence: neighbours in time constant have unlike phases."""
        return np.pi * ((np.arange(self.units) + 0.5) * (np.sqrt(5) - 1) / 2 % 1)

    def _weights(self, key: Array, inputs: int, names: tuple[str, ...]) -> Params:
        keys = jax.random.split(key, len(names))
        return {
            name: jax.random.normal(key, (inputs, self.units)) / np.sqrt(inputs)
            for name, key in zip(names, keys, strict=True)
        }

    def _turned(self, state: Complex, radius: Array, phase: Array, scale: Array, drive: Complex) -> Complex:
        cos, sin = radius * jnp.cos(phase), radius * jnp.sin(phase)
        return Complex(
            real=cos * state.real - sin * state.imaginary + scale * drive.real,
            imaginary=sin * state.real + cos * state.imaginary + scale * drive.imaginary,
        )


class Lru(Rotating):
    """`radius = exp(-exp(nu))`, and a linear drive."""

    def params(self, key: Array, inputs: int) -> Params:
        """Drives `N(0, 1/inputs)`, no bias, time constants and phases spread over the units."""
        weights = self._weights(key, inputs, ("real", "imaginary"))
        rotation = np.stack([-np.log(self.time_constants), np.zeros(self.units)])
        return {**weights, "bias": jnp.zeros(self.units), "rotation": jnp.asarray(rotation, weights["real"].dtype)}

    def advance(self, weights: Params, state: Complex, inputs: Float[Array, " inputs"]) -> Complex:
        """The linear recurrence."""
        nu, turn = weights["rotation"]
        rate = jnp.exp(nu)
        drive = Complex(inputs @ weights["real"] + weights["bias"], inputs @ weights["imaginary"])
        phases = jnp.asarray(self.phases, nu.dtype)
        return self._turned(state, jnp.exp(-rate), phases + rate * turn, jnp.sqrt(-jnp.expm1(-2 * rate)), drive)


class Rtu(Rotating):
    """`radius = sigmoid(keep + u W_gate)`, and a drive through tanh."""

    def params(self, key: Array, inputs: int) -> Params:
        """As for the linear unit, and gates that start nearly closed to the input."""
        weights = self._weights(key, inputs, ("real", "imaginary", "gate"))
        keep = -np.log(np.expm1(1 / self.time_constants))  # sigmoid(keep) = exp(-1/time constant)
        rotation = np.stack([keep, np.zeros(self.units)])
        return {**weights, "bias": jnp.zeros(self.units), "rotation": jnp.asarray(rotation, weights["real"].dtype)}

    def advance(self, weights: Params, state: Complex, inputs: Float[Array, " inputs"]) -> Complex:
        """The gated recurrence: an input that opens the gate shortens the memory for one step."""
        keep, turn = weights["rotation"]
        logit = keep + inputs @ weights["gate"]
        radius = jax.nn.sigmoid(logit)
        drive = Complex(jnp.tanh(inputs @ weights["real"] + weights["bias"]), jnp.tanh(inputs @ weights["imaginary"]))
        phases = jnp.asarray(self.phases, keep.dtype)
        scale = jnp.sqrt(jax.nn.sigmoid(-logit) * (1 + radius))  # sqrt(1 - radius^2)
        return self._turned(state, radius, phases + jax.nn.sigmoid(-keep) * turn, scale, drive)


def diagonal(units: int) -> Diagonal:
    """Leaky units that remember by themselves and do not read each other."""
    return Diagonal(units)


def lru(units: int, *, memory: float = MEMORY) -> Lru:
    """Linear recurrent units: complex, diagonal, stable whatever their parameters (Orvieto et al., arXiv:2303.06349).

    `memory` is the longest time constant at the start, in steps.
    """
    return Lru(units, _checked(memory))


def rtu(units: int, *, memory: float = MEMORY) -> Rtu:
    """Gated rotating units, after the recurrent trace unit (Elelimy et al., arXiv:2409.01449), with an input gate.

    `memory` is the longest time constant at the start, in steps.
    """
    return Rtu(units, _checked(memory))


def _checked(memory: float) -> float:
    if not memory >= 1:
        raise ValueError(f"memory: must be at least 1 step, got {memory}")
    return memory
