"""Which parameters feed which unit, read from names and shapes alone: no network library is asked."""

import dataclasses
import math
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.rows import FactoredRows, Outer, Rows
from natkal.typing import Array, Float

Layout = tuple[tuple[str, tuple[int, ...]], ...]


@dataclasses.dataclass(frozen=True)
class Piece:
    """One leaf in the flat vector: where it starts, its shape, and which axis counts the units."""

    start: int
    shape: tuple[int, ...]
    axis: int

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def units(self) -> int:
        """How many units it feeds."""
        return self.shape[self.axis]

    def matrices(self, rows: Rows) -> Float[Array, "m _ units"]:
        """The leaf's part of each row, units last."""
        if isinstance(rows, FactoredRows):
            own = rows.leaf(rows.starts()[self.start])
        else:
            own = rows[:, self.start : self.start + self.size]
        leaf = own.reshape(len(rows), *self.shape)
        return jnp.moveaxis(leaf, self.axis + 1, -1).reshape(len(rows), -1, self.units)

    def flat(self, matrices: Float[Array, "m _ units"]) -> Float[Array, "m size"]:
        """The inverse of `matrices`."""
        moved = self.shape[: self.axis] + self.shape[self.axis + 1 :] + (self.units,)
        leaf = matrices.reshape(len(matrices), *moved)
        return jnp.moveaxis(leaf, -1, self.axis + 1).reshape(len(matrices), -1)

    def outer(self, rows: Rows) -> Outer | None:
        """The leaf's rows as outer products over the same units, where they are known to be."""
        if not isinstance(rows, FactoredRows):
            return None
        own = rows.leaves[rows.starts()[self.start]]
        if not isinstance(own, Outer) or own.axis != self.axis or own.deltas.shape[1] != self.units:
            return None
        return own


@dataclasses.dataclass(frozen=True)
class Layer:
    """Leaves that feed the same units, seen as one matrix (inputs, units); a bias is its last row."""

    pieces: tuple[Piece, ...]
    units: int
    has_bias: bool

    @property
    def inputs(self) -> int:
        """How many parameters each unit has."""
        return sum(piece.size for piece in self.pieces) // self.units

    @property
    def weights(self) -> "Layer":
        """The layer without its bias."""
        return Layer(pieces=self.pieces[:-1], units=self.units, has_bias=False) if self.has_bias else self

    @property
    def bias(self) -> "Layer | None":
        """The bias alone, a layer with one input."""
        return Layer(pieces=self.pieces[-1:], units=self.units, has_bias=False) if self.has_bias else None

    def matrices(self, rows: Rows) -> Float[Array, "m inputs units"]:
        """The layer's part of each row."""
        parts = [piece.matrices(rows) for piece in self.pieces]
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)

    def outer(self, rows: Rows) -> Outer | None:
        """Its rows as outer products, a 1 for the bias last among the inputs, where they are known to be."""
        if not isinstance(rows, FactoredRows) or len(self.weights.pieces) != 1:
            return None
        own = self.pieces[0].outer(rows)
        if own is None or not self.has_bias:
            return own
        begin = rows.starts()
        if (begin[self.pieces[0].start], begin[self.pieces[1].start]) not in rows.biases:
            return None
        one = jnp.ones(1, own.inputs.dtype)
        return Outer(inputs=jnp.concatenate([own.inputs, one]), deltas=own.deltas, axis=1)

    def leaves(self, matrices: Float[Array, "m inputs units"]) -> list[tuple[int, Array]]:
        """The inverse of `matrices`: the start of each leaf and its flat rows (m, size)."""
        parts, row = [], 0
        for piece in self.pieces:
            fan_in = piece.size // self.units
            parts.append((piece.start, piece.flat(matrices[:, row : row + fan_in])))
            row += fan_in
        return parts


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Layers:
    """All layers of a network; a pytree without leaves, so that a state can carry it."""

    layers: tuple[Layer, ...]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All leaves, in the order of the flat vector."""
        return tuple(sorted((piece for layer in self.layers for piece in layer.pieces), key=lambda piece: piece.start))

    def by_leaf(self, vector: Float[Array, " p"]) -> tuple[Float[Array, "_ _"], ...]:
        """A flat vector as one matrix (inputs, units) per leaf, in the order of `pieces`."""
        return tuple(piece.matrices(vector[None])[0] for piece in self.pieces)

    def flat(self, leaves: Sequence[Float[Array, "_ _"]]) -> Float[Array, " p"]:
        """The inverse of `by_leaf`."""
        return jnp.concatenate([piece.flat(own[None])[0] for piece, own in zip(self.pieces, leaves, strict=True)])

    def split(self, rows: Rows) -> list[Float[Array, "m _ _"]]:
        """Rows as one stack of matrices per layer."""
        return [layer.matrices(rows) for layer in self.layers]

    def join(self, matrices: Sequence[Float[Array, "m _ _"]]) -> Float[Array, "m p"]:
        """One stack of matrices per layer as rows."""
        parts = [part for layer, stack in zip(self.layers, matrices, strict=True) for part in layer.leaves(stack)]
        return jnp.concatenate([leaf for _, leaf in sorted(parts, key=lambda part: part[0])], axis=1)

    def whole(self) -> "Layers":
        """The same layers, each as a single unit that owns all of its parameters."""
        return Layers(tuple(merge(layer.pieces) for layer in self.layers))


def layer_places(small: Layer, large: Layer, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the inputs and the units of a layer stand in a larger one, given where its parameters do."""
    with jax.ensure_compile_time_eval():
        last = max(piece.start + piece.size for piece in small.pieces)
        own = np.asarray(small.matrices(_numbered(last))[0]).astype(int)
        size = max(piece.start + piece.size for piece in large.pieces)
        numbers = np.asarray(large.matrices(_numbered(size))[0]).astype(int)
    row_of = {int(number): row for row, line in enumerate(numbers) for number in line}
    unit_of = {int(number): unit for line in numbers for unit, number in enumerate(line)}
    inputs = np.array([row_of[int(places[number])] for number in own[:, 0]])
    units = np.array([unit_of[int(places[number])] for number in own[0]])
    return inputs, units


def _numbered(size: int) -> Any:
    return jnp.arange(size, dtype=float)[None]


def merge(pieces: Sequence[Piece]) -> Layer:
    """These leaves as one unit."""
    flat = tuple(Piece(start=piece.start, shape=(piece.size, 1), axis=1) for piece in pieces)
    return Layer(pieces=flat, units=1, has_bias=False)


def starts(layout: Layout) -> list[int]:
    """Where each leaf begins in the flat vector."""
    return [0, *accumulate(math.prod(shape) for _, shape in layout)][:-1]


def find_layers(layout: Layout) -> Layers:
    """Group the leaves of each container into layers.

    A matrix or kernel of shape (inputs..., units) feeds one unit per index of its last axis; of its first, where only
    that one matches a bias beside it. All matrices beside a single bias of their width share it (a recurrent cell); as
    many biases as matrices are paired in order. Vectors beside no matrix are one unit each, with a scalar for bias, or
    one unit per entry where several have the same length (a normalisation's scale and offset).
    """
    containers: dict[str, list[int]] = {}
    for index, (path, _) in enumerate(layout):
        containers.setdefault(re.sub(r"(\[[^\]]*\]|\.?[^.\[\]]+)$", "", path), []).append(index)
    begin = starts(layout)
    layers = []
    for members in containers.values():
        shapes = {index: layout[index][1] for index in members}
        layers += [
            Layer(
                pieces=tuple(Piece(begin[index], shape, axis) for index, shape, axis in group),
                units=group[0][1][group[0][2]],
                has_bias=has_bias,
            )
            for group, has_bias in _container(shapes)
        ]
    return Layers(tuple(layers))


def with_outgoing(layers: Layers) -> Layers:
    """Each unit with its outgoing weights too, where the layer that reads it is narrower than its own.

    The numbers a layer gives may be several for each unit, part by part (a complex unit has two): a matrix of shape
    (parts x units, outputs) is then read as (parts, units, outputs). Biases of the reading layer stay by themselves.
    """
    kept = {layer.pieces[0].start: layer for layer in layers.layers}
    for reader in layers.layers:
        weight = reader.pieces[0]
        if len(weight.shape) != 2 or weight.axis != 1 or weight.start not in kept:
            continue
        width = weight.shape[0]
        wider = [
            (start, layer)
            for start, layer in kept.items()
            if layer is not reader and start < weight.start and layer.units > reader.units and width % layer.units == 0
        ]
        if not wider:
            continue
        start, source = wider[-1]
        parts = (width // source.units, source.units, reader.units)
        joined = (*source.pieces, Piece(start=weight.start, shape=parts, axis=1))
        kept[start] = Layer(pieces=joined, units=source.units, has_bias=False)
        del kept[weight.start]
        if reader.pieces[1:]:
            rest = Layer(pieces=reader.pieces[1:], units=reader.units, has_bias=False)
            kept[rest.pieces[0].start] = rest
    return Layers(tuple(kept[start] for start in sorted(kept)))


def _container(shapes: dict[int, tuple[int, ...]]) -> list[tuple[list[tuple[int, tuple[int, ...], int]], bool]]:
    """Layers of one container: lists of (leaf, shape, unit axis), biases last, and whether there is one."""
    vectors = {index: shape for index, shape in shapes.items() if len(shape) == 1}
    scalars = [index for index, shape in shapes.items() if len(shape) == 0]
    widths = {shape[0] for shape in vectors.values()}
    by_width: dict[int, list[tuple[int, tuple[int, ...], int]]] = {}
    for index, shape in shapes.items():
        if len(shape) >= 2:
            first = shape[-1] not in widths and shape[0] in widths
            axis = 0 if first else len(shape) - 1
            by_width.setdefault(shape[axis], []).append((index, shape, axis))
    groups = []
    for width, matrices in by_width.items():
        biases = [(index, shape, 0) for index, shape in vectors.items() if shape == (width,)]
        if len(biases) == 1:
            groups.append(([*matrices, biases[0]], True))
        elif len(biases) == len(matrices):
            groups += [([matrix, bias], True) for matrix, bias in zip(matrices, biases, strict=True)]
        else:
            groups += [([matrix], False) for matrix in matrices]
            continue
        for index, _, _ in biases:
            del vectors[index]
    for width in dict.fromkeys(shape[0] for shape in vectors.values()):
        same = [(index, shape, 0) for index, shape in vectors.items() if shape == (width,)]
        if len(same) > 1:
            groups.append((same, False))
        elif len(vectors) == 1 and len(scalars) == 1:
            groups.append(([(same[0][0], (width, 1), 1), (scalars.pop(), (1, 1), 1)], True))
        else:
            groups.append(([(same[0][0], (width, 1), 1)], False))
    groups += [([(index, (1, 1), 1)], False) for index in scalars]
    return groups
