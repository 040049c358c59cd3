"""What a ready cell is: first weights, a state at rest, one step, and the numbers that are read from its state."""

import abc
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.typing import Array, Float, Params


class Cell(abc.ABC):
    """`s' = cell(params, s, u)`, with its weights in `params["cell"]`."""

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """How many numbers `output` gives."""

    @abc.abstractmethod
    def params(self, key: Array, inputs: int) -> Params:
        """First weights, for inputs of this length."""

    @abc.abstractmethod
    def state(self) -> Any:
        """Every unit at rest."""

    @abc.abstractmethod
    def advance(self, weights: Params, state: Any, inputs: Float[Array, " inputs"]) -> Any:
        """The next state, from the cell's own weights."""

    @abc.abstractmethod
    def output(self, state: Any) -> Float[Array, " width"]:
        """The part of the state that readouts and other layers see."""

    def __call__(self, params: Params, state: Any, inputs: Any) -> Any:
        """The next state."""
        return self.advance(params["cell"], state, jnp.atleast_1d(inputs))

    def readout(self, params: Params, state: Any, inputs: Any) -> Float[Array, " outputs"]:
        """An affine map of the cell's output, with the weights in `params["readout"]`."""
        return self.output(state) @ params["readout"]["weight"] + params["readout"]["bias"]


@dataclasses.dataclass(frozen=True, eq=False)
class UnitCell(Cell):
    """A cell in which each weight feeds one unit, that of its last index; the state has one number per unit and leaf.

    `owners` and `wiring` say so to the sensitivities: `rtrl`, `snap` and `diagonal` exploit it.
    """

    units: int

    @property
    def width(self) -> int:
        """One number for each unit."""
        return self.units

    def state(self) -> Any:
        """Every unit at rest."""
        return jnp.zeros(self.units)

    def output(self, state: Any) -> Float[Array, " width"]:
        """The first leaf."""
        return jax.tree.leaves(state)[0]

    def owners(self, params: Params) -> np.ndarray:
        """For each parameter the one unit it feeds; -1 for those of the readout, which feed none."""
        nothing = jax.tree.map(lambda leaf: np.full(np.shape(leaf), -1), params)
        return _flat({**nothing, "cell": jax.tree.map(self._units_fed, params["cell"])})

    def weight_owners(self, weights: Params) -> np.ndarray:
        """The same for the cell's own weights."""
        return _flat(jax.tree.map(self._units_fed, weights))

    def _units_fed(self, leaf: Any) -> np.ndarray:
        return np.broadcast_to(np.arange(np.shape(leaf)[-1]) % self.units, np.shape(leaf))

    @property
    @abc.abstractmethod
    def wiring(self) -> np.ndarray:
        """Which unit (row) reads which (column); every unit reads itself."""


def readout_params(key: Array, width: int, outputs: int) -> Params:
    """Weights `N(0, 1/width)` and zero biases: for `Cell.readout`, and for the maps between layers."""
    return {"weight": jax.random.normal(key, (width, outputs)) / np.sqrt(width), "bias": jnp.zeros(outputs)}


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
