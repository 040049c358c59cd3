"""What the GPU's programs do with the tiles of one triangle, in Pallas."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from natkal.curvature.kernels.halves import product, split_piece
from natkal.curvature.kernels.packed import tile_count
from natkal.typing import Array

UNROLLED = 8
"""Lines of a table under way at once."""
NEIGHBOURS = 8
"""Rows of pieces that are folded side by side, so that they share what they read of U."""


def multiply(tiles: Any, x: Any, scale: Any, along: Any, across: Any, *, count: int, piece: int, chunk: int) -> None:
    """One row of tiles, `chunk` block columns: sums along the columns and, transposed, across them.

    Of the rows of x the first `count` are wanted.
    """
    row, column = pl.program_id(0), pl.program_id(1)
    parts, height = x.shape[0], x.shape[1]
    group = tiles.shape[1] // piece
    first = row * group
    empty, factor = jnp.zeros((height, piece), along.dtype), scale[0]

    def rows_at(block: Any) -> tuple[Array, ...]:
        return tuple(x[part, :, pl.ds(block * piece, piece)] for part in range(parts))

    def piece_at(g: int, c: Array) -> tuple[Array, ...]:
        place = tile_count(row) + c // group
        return split_piece(factor * tiles[place, pl.ds(g * piece, piece), pl.ds((c % group) * piece, piece)])

    def keep(table: Any, line: Array, block: Array, values: Array) -> None:
        wanted = jax.lax.broadcasted_iota(jnp.int32, values.shape, 0) < count
        all_rows = pl.ds(block * 0, height)  # a plain slice would begin at an integer of another type under x64
        plgpu.store(table.at[line, all_rows, pl.ds(block * piece, piece)], values, mask=wanted)

    mine = [rows_at(first + g) for g in range(group)]

    def left_of_the_diagonal(c: Array, sums: tuple[Array, ...]) -> tuple[Array, ...]:
        here, down, new = rows_at(c), empty, []
        for g in range(group):
            values = piece_at(g, c)
            new.append(sums[g] + product(here, values, (1, 1)))
            down = down + product(mine[g], values, (1, 0))
        keep(along, row, c, down)
        return tuple(new)

    def on_the_diagonal(c: Array, sums: tuple[Array, ...]) -> tuple[Array, ...]:
        """The tile is there in full."""
        here = rows_at(c)
        return tuple(sums[g] + product(here, piece_at(g, c), (1, 1)) for g in range(group))

    start = jnp.minimum(column * chunk, first)
    sums = jax.lax.fori_loop(start, jnp.minimum(start + chunk, first), left_of_the_diagonal, (empty,) * group)
    # The first chunk's program takes the diagonal.
    sums = jax.lax.fori_loop(first, jnp.maximum(first + group - column * group, first), on_the_diagonal, sums)

    @pl.when((column == 0) | (column * chunk < first))
    def _() -> None:
        for g in range(group):
            keep(across, column, first + g, sums[g])


def add_up(along: Any, across: Any, out: Any, *, side: int, reach: int) -> None:
    """One row of the result, the columns of one tile: the lines of both tables that hold something for them.

    Rows of tiles below this one have written `along`; chunks that begin left of its diagonal, `across`.
    """
    row, block = pl.program_id(0), pl.program_id(1)
    columns = pl.ds(block * side, side)
    chunks = jnp.maximum((block * side + reach - 1) // reach, 1)

    def total(table: Any, first: Array, last: Array, start: Array) -> Array:
        def some(turn: Array, sums: Array) -> Array:
            for line in range(UNROLLED):
                at = first + turn * UNROLLED + line
                values = table[jnp.minimum(at, last - 1), row, columns]
                sums = sums + jnp.where(at < last, values, 0.0)
            return sums

        return jax.lax.fori_loop(first * 0, (last - first + UNROLLED - 1) // UNROLLED, some, start)

    below = total(along, block + 1, block * 0 + along.shape[0], jnp.zeros((side,), out.dtype))
    out[row, columns] = total(across, block * 0, chunks, below)


def fold(tiles: Any, rows: Any, scales: Any, held: Any, out: Any, *, piece: int, height: int) -> None:
    """One square of C <- H scale (C - U'U) H, where it lies in a tile that is stored."""
    parts, capacity, width = rows.shape
    within = tiles.shape[1] // piece
    across, down = pl.program_id(0), pl.program_id(1)
    j, i = across // NEIGHBOURS, down * NEIGHBOURS + across % NEIGHBOURS

    @pl.when((j // within <= i // within) & (i < width // piece))
    def _() -> None:
        def some_rows(turn: Array, sums: Array) -> Array:
            left, right = (
                tuple(rows[part, pl.ds(turn * height, height), pl.ds(at * piece, piece)] for part in range(parts))
                for at in (i, j)
            )
            return sums + product(left, right, (0, 0))

        none = i * 0
        empty = jnp.zeros((piece, piece), tiles.dtype)
        sums = jax.lax.fori_loop(none, none + capacity // height, some_rows, empty)
        place = tile_count(i // within) + j // within
        at = (place, pl.ds((i % within) * piece, piece), pl.ds((j % within) * piece, piece))
        down, right = held[pl.ds(i * piece, piece)], held[pl.ds(j * piece, piece)]
        out[at] = scales[0] * (tiles[at] - (scales[1] * sums) * scales[1]) * down[:, None] * right[None, :]
