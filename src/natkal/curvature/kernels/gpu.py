"""C as one triangle of tiles on a GPU: each tile is read once and used twice, as itself and transposed."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from natkal.curvature.kernels.packed import Tiles, pack, tile_count, unpack
from natkal.typing import Array, Float, Int

LEAST_ROWS = 16
"""What a matrix unit multiplies at least; fewer rows are filled up with zeros."""


@dataclasses.dataclass(frozen=True)
class Triton:
    """Tiles of `side` x `side`, a power of two.

    A program of the product takes `group` block rows and `chunk` block columns. Along a column it sums what the tiles
    add to that column of the result, along its rows what they add, transposed, to the rows; both go to tables of
    partial results, one line per group and one per chunk, which is small beside C and is summed in a fixed order.
    `interpret` runs the same programs without a GPU, for tests.
    """

    side: int = 64
    group: int = 4
    chunk: int = 64
    warps: int = 4
    stages: int = 2
    interpret: bool = False

    def pack(self, cov: Float[Array, " p"] | Float[Array, "p p"]) -> Tiles:
        """One triangle, filled up to whole groups of block rows."""
        return pack(cov, self.side, self.group)

    def unpack(self, base: Tiles, size: int) -> Float[Array, "p p"]:
        """C in full."""
        return unpack(base, size, self.group)

    def multiply(self, base: Tiles, rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Rows C, from one read of the triangle."""
        count, size = rows.shape
        blocks, width = self._blocks(size), self._blocks(size) * self.side
        height = -(-count // LEAST_ROWS) * LEAST_ROWS
        groups, chunks = blocks // self.group, -(-blocks // self.chunk)
        padded = jnp.pad(rows, ((0, height - count), (0, width - size)))
        along, across = pl.pallas_call(
            partial(_multiply_program, layout=self),
            grid=(groups, chunks),
            out_shape=(
                jax.ShapeDtypeStruct((groups, height, width), rows.dtype),
                jax.ShapeDtypeStruct((chunks, height, width), rows.dtype),
            ),
            interpret=self.interpret,
            **self._options(),
        )(base, padded)
        # Group i has written the columns up to its own last one, and nothing beyond.
        last = (jnp.arange(groups) + 1) * self.group * self.side
        written = jnp.arange(width)[None, :] < last[:, None]
        total = jnp.sum(jnp.where(written[:, None, :], along, 0.0), axis=0) + jnp.sum(across, axis=0)
        return total[:count, :size]

    def fold(self, base: Tiles, rows: Float[Array, "b p"], count: Int[Array, ""], scale: Float[Array, ""]) -> Tiles:
        """C <- scale (C - U'U) in the same memory; programs end at once where nothing waits."""
        blocks = self._blocks(rows.shape[1])
        padded = jnp.pad(rows, ((0, 0), (0, blocks * self.side - rows.shape[1])))
        return pl.pallas_call(
            partial(_fold_program, layout=self),
            grid=(blocks, -(-blocks // self.chunk)),
            out_shape=jax.ShapeDtypeStruct(base.shape, base.dtype),
            input_output_aliases={0: 0},
            interpret=self.interpret,
            **self._options(),
        )(base, padded, count[None], scale[None])

    def _blocks(self, size: int) -> int:
        return -(-size // (self.side * self.group)) * self.group

    def _options(self) -> dict[str, Any]:
        if self.interpret:
            return {}
        return {"compiler_params": plgpu.CompilerParams(num_warps=self.warps, num_stages=self.stages)}

    def dot(self, left: Array, right: Array) -> Array:
        """A product in full float32: three passes of the matrix units."""
        precision = "highest" if self.interpret or left.dtype != jnp.float32 else "TF32_TF32_F32_X3"
        return jnp.dot(left, right, precision=precision, preferred_element_type=left.dtype)


def _multiply_program(tiles: Any, x: Any, along: Any, across: Any, *, layout: Triton) -> None:
    side, group, chunk = layout.side, layout.group, layout.chunk
    row, column = pl.program_id(0), pl.program_id(1)
    first = row * group
    height = x.shape[0]
    mine = [x[:, pl.ds((first + g) * side, side)] for g in range(group)]
    empty = jnp.zeros((height, side), x.dtype)

    def full_column(c: Array, sums: tuple[Array, ...]) -> tuple[Array, ...]:
        """A column left of the diagonal: `group` tiles, all of them there."""
        here = x[:, pl.ds(c * side, side)]
        down, new = empty, []
        for g in range(group):
            tile = tiles[tile_count(first + g) + c, :, :]
            down = down + layout.dot(mine[g], tile)
            new.append(sums[g] + layout.dot(here, tile.T))
        along[row, :, pl.ds(c * side, side)] = down
        return tuple(new)

    def last_columns(step: Array, sums: tuple[Array, ...]) -> tuple[Array, ...]:
        """A column that meets the diagonal: tiles above it are not stored, the one on it is its own transpose."""
        c = first + step
        here = x[:, pl.ds(c * side, side)]
        down, new = empty, []
        for g in range(group):
            below = (g > step).astype(x.dtype)
            tile = tiles[tile_count(first + g) + jnp.minimum(c, first + g), :, :]
            down = down + below * layout.dot(mine[g], tile)
            there = (g >= step).astype(x.dtype)
            new.append(sums[g] + there * layout.dot(here, tile.T))
        along[row, :, pl.ds(c * side, side)] = down
        return tuple(new)

    sums = (empty,) * group
    start = jnp.minimum(column * chunk, first)
    sums = jax.lax.fori_loop(start, jnp.minimum(start + chunk, first), full_column, sums)
    # The first chunk's program takes the columns at the diagonal. Triton wants bounds that are values, not literals.
    none = column * 0
    sums = jax.lax.fori_loop(none, jnp.maximum(group - column * group, none), last_columns, sums)
    for g in range(group):
        across[column, :, pl.ds((first + g) * side, side)] = sums[g]


def _fold_program(tiles: Any, rows: Any, count: Any, scale: Any, out: Any, *, layout: Triton) -> None:
    side, chunk = layout.side, layout.chunk
    b, column = pl.program_id(0), pl.program_id(1)

    @pl.when(count[0] > 0)
    def _() -> None:
        waiting = jnp.arange(rows.shape[0])[:, None] < count[0]
        mine = jnp.where(waiting, rows[:, pl.ds(b * side, side)], 0.0).T

        def one(c: Array, _: None) -> None:
            place = tile_count(b) + c
            product = layout.dot(mine, rows[:, pl.ds(c * side, side)])
            out[place, :, :] = scale[0] * (tiles[place, :, :] - product)

        start = jnp.minimum(column * chunk, b + 1)
        jax.lax.fori_loop(start, jnp.minimum(start + chunk, b + 1), one, None)
