"""Layers cut into parts that lie on the devices of a mesh, and the vector that all of them together are."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature.units import Layer, Layers
from natkal.rows import FactoredRows, Outer, Rows
from natkal.typing import Array, Float

Run = tuple[int, int]
Shape = tuple[int, int]


class Part(NamedTuple):
    """Units [first, last) of one layer."""

    layer: int
    first: int
    last: int


@partial(jax.tree_util.register_dataclass, data_fields=["numbers"], meta_fields=["runs"])
@dataclasses.dataclass(frozen=True)
class Packed:
    """A long vector in runs: row d of `numbers` has those of `runs[d]`, one after another, and zeros behind.

    The order of the long vector does not depend on how many devices there are, so that it can be cut anew.
    """

    numbers: Float[Array, "devices longest"]
    runs: tuple[tuple[Run, ...], ...]


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Cut:
    """The parts of each device, and whether they keep a prior; a pytree without leaves."""

    layers: Layers
    devices: tuple[tuple[Part, ...], ...]
    kept: bool

    def shape(self, part: Part) -> Shape:
        """Inputs and units."""
        return self.layers.layers[part.layer].inputs, part.last - part.first

    def vector(self, part: Part, vector: Float[Array, " p"]) -> Float[Array, " own"]:
        """A part of a vector over all parameters."""
        return self._layer(part).matrices(vector[None])[0][:, part.first : part.last].ravel()

    def rows(self, part: Part, rows: Rows) -> FactoredRows:
        """A part of rows over all parameters: outer products where they are known to be."""
        known = self._layer(part).outer(rows)
        if known is None:
            return FactoredRows(leaves=(self._layer(part).matrices(rows)[:, :, part.first : part.last],), biases=())
        own = Outer(inputs=known.inputs, deltas=known.deltas[:, part.first : part.last], axis=1)
        return FactoredRows(leaves=(own,), biases=())

    def joined(self, parts: Sequence[Part], vectors: Sequence[Float[Array, " own"]]) -> Float[Array, " p"]:
        """A vector over all parameters from its parts, zero elsewhere."""
        dtype = vectors[0].dtype
        whole = [jnp.zeros((layer.inputs, layer.units), dtype) for layer in self.layers.layers]
        for part, vector in zip(parts, vectors, strict=True):
            own = vector.reshape(self.shape(part))
            whole[part.layer] = whole[part.layer].at[:, part.first : part.last].set(own)
        return self.layers.join([matrix[None] for matrix in whole])[0]

    def runs(self, leaves: Callable[[Shape], list[tuple[int, ...]]]) -> tuple[tuple[Run, ...], ...]:
        """Where each device's numbers stand in the vector of all layers, given the arrays of one layer.

        Of a layer that is cut, each array has the units on its first axis.
        """
        starts, at = [], 0
        for layer in self.layers.layers:
            own = []
            for shape in leaves((layer.inputs, layer.units)):
                own.append((at, math.prod(shape)))
                at += math.prod(shape)
            starts.append(own)
        return tuple(
            _merged(
                (start + size * part.first // units, start + size * part.last // units)
                for part in parts
                for units in [self._layer(part).units]
                for start, size in starts[part.layer]
            )
            for parts in self.devices
        )

    def _layer(self, part: Part) -> Layer:
        return self.layers.layers[part.layer]


def deal(layers: Layers, devices: int, size: Callable[[Shape], int], *, by_unit: bool, kept: bool) -> Cut:
    """Parts of the layers dealt out to the devices: largest first, each to the device that holds least."""
    parts = []
    for index, layer in enumerate(layers.layers):
        pieces = min(devices, layer.units) if by_unit else 1
        ends = [layer.units * piece // pieces for piece in range(pieces + 1)]
        parts += [Part(index, first, last) for first, last in itertools.pairwise(ends)]
    if len(parts) < devices:
        kind = "blocks" if by_unit else "layers"
        raise ValueError(
            f"mesh: has {devices} devices, and the model {len(parts)} {kind}, each of which lies on one device; "
            f"use at most {len(parts)} devices"
        )
    sizes = {part: size((layers.layers[part.layer].inputs, part.last - part.first)) for part in parts}
    held: list[list[Part]] = [[] for _ in range(devices)]
    load = [0] * devices
    for part in sorted(parts, key=lambda part: -sizes[part]):
        device = load.index(min(load))
        held[device].append(part)
        load[device] += sizes[part]
    return Cut(layers=layers, devices=tuple(tuple(sorted(own)) for own in held), kept=kept)


def packed(tree: Any, length: int, dtype: Any) -> Float[Array, " length"]:
    """The arrays of a pytree one after another, and zeros behind."""
    leaves = [leaf.astype(dtype).ravel() for leaf in jax.tree.leaves(tree)]
    flat = jnp.concatenate([*leaves, jnp.zeros(0, dtype)])
    return jnp.pad(flat, (0, length - len(flat)))


def unpacked(template: Any, numbers: Float[Array, " length"]) -> Any:
    """The pytree that `packed` was given, from one like it, which may be abstract."""
    leaves, structure = jax.tree.flatten(template)
    found, at = [], 0
    for leaf in leaves:
        size = math.prod(leaf.shape)
        found.append(numbers[at : at + size].reshape(leaf.shape).astype(leaf.dtype))
        at += size
    return jax.tree.unflatten(structure, found)


def _merged(runs: Any) -> tuple[Run, ...]:
    """Runs that follow one another as one."""
    found: list[Run] = []
    for first, last in runs:
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return tuple(found)
