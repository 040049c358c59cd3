"""Recurrent networks of one layer as members of a table: a memory of the inputs, not of the labels.

The sensitivities are exact. A cell whose units do not read each other (lru, rtu) keeps a trace for each weight and a
covariance for each unit, so that a step costs about as much as the forward pass; the others keep the whole matrix.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.banks.spec import GroupSpec
from natkal.banks.units.late_classes import with_offsets
from natkal.compiling.float64 import float64
from natkal.compiling.policy import compile_whole
from natkal.curvature import Curvature, blocks, dense
from natkal.families import Family
from natkal.models import Model, cells, recurrent_model
from natkal.models.recurrent import sensitivity
from natkal.models.recurrent.sensitivity import Sensitivity
from natkal.tables.learner.base import DENSE_UP_TO, Architecture, Inputs, Shape
from natkal.typing import Array, Params

EXACT = sensitivity.rtrl()


class Kind(NamedTuple):
    """A cell by its number of units, and how its sensitivities are carried, exactly."""

    cell: Any
    sensitivity: Sensitivity


KINDS = {
    "rnn": Kind(cells.tanh, EXACT),
    "gru": Kind(cells.gru, EXACT),
    "lstm": Kind(cells.lstm, EXACT),
    "lru": Kind(cells.lru, sensitivity.diagonal()),
    "rtu": Kind(cells.rtu, sensitivity.diagonal()),
}


@dataclasses.dataclass(frozen=True, eq=False)
class CellOfRow:
    """A cell on these numbers of a row, those of them that `mask` lets through."""

    cell: Any
    inputs: tuple[int, ...]
    mask: Any

    def __call__(self, params: Params, state: Any, inputs: Inputs) -> Any:
        """The next state."""
        return self.cell(params, state, self.numbers(inputs))

    def read(self, params: Params, state: Any, inputs: Inputs) -> Array:
        """The raw outputs."""
        return with_offsets(self.cell.readout(params, state, self.numbers(inputs)), inputs.known)

    def numbers(self, inputs: Inputs) -> Array:
        """What the cell is given; slices, since a gather would not become part of one machine function."""
        numbers = inputs.features * self.mask
        return jnp.concatenate([numbers[first:last] for first, last in stretches(self.inputs)])

    def owners(self, params: Params) -> np.ndarray:
        """The unit that each parameter feeds."""
        return self.cell.owners(params)

    @property
    def wiring(self) -> np.ndarray:
        """Which unit reads which."""
        return self.cell.wiring


@dataclasses.dataclass(frozen=True)
class Memory(Architecture):
    """One layer of units of this kind, on these inputs."""

    kind: str
    units: int
    inputs: tuple[int, ...]
    dtype: Any = np.float64

    @property
    def name(self) -> str:
        """As the option `model` spells it."""
        return f"{self.kind}:{self.units}"

    def params(self, seed: int, shape: Shape, outputs: int) -> Params:
        """First weights of the cell and of its readout, of variance 1/fan-in."""
        drawn = first_weights(self.kind, self.units, len(self.inputs), outputs, seed)
        return jax.tree.map(lambda leaf: leaf.astype(self.dtype), drawn)

    def model(self, params: Params, family: Family, value: Mapping[str, Any]) -> Model:
        """The cell on the inputs that the mask lets through."""
        kind = KINDS[self.kind]
        own = kind.cell(self.units)
        cell = CellOfRow(own, self.inputs, value["mask"])
        return recurrent_model(cell, cell.read, params, own.state(), family, sensitivity=kind.sensitivity)

    def curvature(self, size: int) -> Curvature:
        """A covariance for each unit, or a full one of a small network in float64 whose units read each other.

        A step from beyond the prior, where forgetting alone would lead, is one that no linearisation holds for.
        """
        apart = KINDS[self.kind].sensitivity != EXACT or self.dtype == np.float32
        return blocks(within_prior=True) if apart or size > 3 * DENSE_UP_TO else dense(kernel="immediate")


@functools.lru_cache(maxsize=64)
@float64
def first_weights(kind: str, units: int, inputs: int, outputs: int, seed: int) -> Params:
    """Of a cell and of its readout; the same numbers in every door."""
    cell = KINDS[kind].cell(units)

    def draw() -> Params:
        cell_key, readout_key = jax.random.split(jax.random.key(seed))
        own = cell.params(cell_key, inputs)
        return {"cell": own, "readout": cells.readout_params(readout_key, cell.width, outputs)}

    return jax.tree.map(np.asarray, compile_whole(draw, name=("first weights", kind, units, inputs, outputs, seed))())


def make_memory(spec: GroupSpec, shape: Shape) -> Memory:
    """The network that a group names; where no member sees earlier targets, they are not among its inputs."""
    kind, _, units = spec.architecture.partition(":")
    seen = np.arange(shape.columns)
    if all(member.inputs == "without past" for member in spec.members):
        seen = np.flatnonzero(~shape.is_past)
    return Memory(kind, int(units), tuple(seen.tolist()), np.dtype(spec.dtype))


def stretches(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where runs of consecutive places begin and end."""
    first = 0
    for last in range(1, len(places) + 1):
        if last == len(places) or places[last] != places[last - 1] + 1:
            yield places[first], places[last - 1] + 1
            first = last
