"""C as one triangle of tiles on a GPU: each tile is read once and used twice, as itself and transposed."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from natkal.curvature.kernels import programs
from natkal.curvature.kernels.deferred import folded_variances
from natkal.curvature.kernels.halves import power_below, split
from natkal.curvature.kernels.packed import Tiles, pack, tile_count, unpack
from natkal.curvature.limits import holds
from natkal.typing import Array, Float, Int

LEAST_ROWS, MOST_ROWS = 16, 32
"""What a matrix unit multiplies at least, fewer rows being filled up with zeros; and what one read of C serves."""


@dataclasses.dataclass(frozen=True)
class Triton:
    """Tiles of `side` x `side`, those on the diagonal in full; all sizes are powers of two.

    A program of the product takes one row of tiles and `chunk` block columns, in pieces of `piece` x `piece`. Along a
    column it sums what its pieces add to that column of the result, along its rows what they add, transposed, to the
    rows; both go to tables of partial results, one line per row of tiles and one per chunk, which are small beside C
    and are summed in a fixed order. A program of the fold takes a square of `fold_piece` and `fold_rows` rows of U at
    a time. Products of float32 are made of halves (`halves.py`). `interpret` runs it all without a GPU, for tests.
    """

    side: int = 128
    piece: int = 32
    chunk: int = 64
    warps: int = 2
    stages: int = 3
    fold_piece: int = 64
    fold_rows: int = 32
    fold_warps: int = 4
    fold_stages: int = 3
    interpret: bool = False

    @classmethod
    def interpreted(cls) -> "Triton":
        """Small pieces, without a GPU."""
        return cls(side=32, piece=16, chunk=2, fold_piece=16, fold_rows=16, interpret=True)

    def pack(self, cov: Float[Array, " p"] | Float[Array, "p p"]) -> Tiles:
        """One triangle, filled up to whole tiles."""
        return pack(cov, self.side)

    def unpack(self, base: Tiles, size: int) -> Float[Array, "p p"]:
        """C in full."""
        return unpack(base, size)

    def multiply(self, base: Tiles, rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Rows C, from one read of the triangle for every `MOST_ROWS`."""
        count, size = rows.shape
        if count > MOST_ROWS:
            slabs = -(-count // MOST_ROWS)
            padded = jnp.pad(rows, ((0, slabs * MOST_ROWS - count), (0, 0))).reshape(slabs, MOST_ROWS, size)
            images = jax.lax.map(lambda slab: self.multiply(base, slab), padded)
            return images.reshape(slabs * MOST_ROWS, size)[:count]
        blocks, width = self._blocks(size), self._blocks(size) * self.side
        height = LEAST_ROWS if count <= LEAST_ROWS else MOST_ROWS
        chunks = -(-width // (self.chunk * self.piece))
        of_base = power_below(self._largest(base, blocks))
        of_rows = power_below(jnp.max(jnp.abs(rows), axis=1))[:, None]
        parts = jnp.pad(split(rows * of_rows), ((0, 0), (0, height - count), (0, width - size)))
        along, across = pl.pallas_call(
            partial(programs.multiply, count=count, piece=self.piece, chunk=self.chunk),
            grid=(blocks, chunks),
            out_shape=tuple(jax.ShapeDtypeStruct((n, height, width), rows.dtype) for n in (blocks, chunks)),
            interpret=self.interpret,
            **self._options(self.warps, self.stages),
        )(base, parts, of_base[None])
        total = pl.pallas_call(
            partial(programs.add_up, side=self.side, reach=self.chunk * self.piece),
            grid=(count, blocks),
            out_shape=jax.ShapeDtypeStruct((count, width), rows.dtype),
            interpret=self.interpret,
            **self._options(1, 1),
        )(along, across)
        return total[:, :size] / of_base / of_rows

    def fold(
        self,
        base: Tiles,
        rows: Float[Array, "b p"],
        count: Int[Array, ""],
        scale: Float[Array, ""],
        limit: Float[Array, ""],
    ) -> Tiles:
        """C <- H scale (C - U'U) H in the same memory: a loop of no or one turn."""
        capacity, size = rows.shape
        width = self._blocks(size) * self.side
        pieces = width // self.fold_piece
        height = -(-capacity // self.fold_rows) * self.fold_rows

        def once(turn: Int[Array, ""], base: Tiles) -> Tiles:
            # What depends on the turn is not computed where there is none.
            waiting = jnp.where(jnp.arange(capacity)[:, None] < count - turn, rows, 0.0)
            factor = power_below(jnp.max(jnp.abs(waiting)))
            parts = jnp.pad(split(waiting * factor), ((0, 0), (0, height - capacity), (0, width - size)))
            variances = folded_variances(
                self._diagonal(base, width // self.side).reshape(-1)[:size], waiting, count, scale
            )
            held = jnp.pad(holds(variances, limit), (0, width - size))
            return pl.pallas_call(
                partial(programs.fold, piece=self.fold_piece, height=self.fold_rows),
                grid=(pieces * programs.NEIGHBOURS, -(-pieces // programs.NEIGHBOURS)),
                out_shape=jax.ShapeDtypeStruct(base.shape, base.dtype),
                input_output_aliases={0: 0},
                interpret=self.interpret,
                **self._options(self.fold_warps, self.fold_stages),
            )(base, parts, jnp.stack([scale, 1.0 / factor]), held)

        return jax.lax.fori_loop(0, jnp.where(count > 0, 1, 0), once, base)

    def _blocks(self, size: int) -> int:
        return -(-size // self.side)

    def _largest(self, base: Tiles, blocks: int) -> Float[Array, ""]:
        """The largest number of C, which lies on its diagonal: C is positive semi-definite."""
        return jnp.max(jnp.abs(self._diagonal(base, blocks)))

    def _diagonal(self, base: Tiles, blocks: int) -> Float[Array, "blocks side"]:
        """Of C, tile by tile."""
        place, inside = tile_count(jnp.arange(1, blocks + 1)) - 1, jnp.arange(self.side)
        return base[place[:, None], inside[None, :], inside[None, :]]

    def _options(self, warps: int, stages: int) -> dict[str, Any]:
        if self.interpret:
            return {}
        return {"compiler_params": plgpu.CompilerParams(num_warps=warps, num_stages=stages)}
