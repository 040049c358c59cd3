"""C as one triangle of 32 x 32 tiles: half the memory and half the traffic, through the compiled CPU kernel."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from natkal.curvature.kernels.fused import fold, multiply
from natkal.typing import Array, Float, Int

TARGET = "packed"
Tiles = Float[Array, "tiles side side"]


def tile_count(blocks: Any) -> Any:
    """Tiles in the first `blocks` block rows, which is where the next row starts."""
    return blocks * (blocks + 1) // 2


def pack(cov: Float[Array, " p"] | Float[Array, "p p"], side: int) -> Tiles:
    """The lower triangle of tiles, row by row, padded with zeros to whole tiles.

    From variances it is made without a full matrix.
    """
    size = len(cov)
    blocks = -(-size // side)
    if cov.ndim == 1:
        padded = jnp.pad(cov, (0, blocks * side - size)).reshape(blocks, side)
        diagonal = tile_count(jnp.arange(1, blocks + 1)) - 1
        inside = jnp.arange(side)
        empty = jnp.zeros((tile_count(blocks), side, side), cov.dtype)
        return empty.at[diagonal[:, None], inside[None, :], inside[None, :]].set(padded)
    padded = jnp.pad(cov, (0, blocks * side - size)).reshape(blocks, side, blocks, side)
    return padded.transpose(0, 2, 1, 3)[np.tril_indices(blocks)]


def unpack(tiles: Tiles, size: int) -> Float[Array, "p p"]:
    """The full matrix."""
    side = tiles.shape[-1]
    blocks = -(-size // side)
    left, right = np.tril_indices(blocks)
    grid = jnp.zeros((blocks, blocks, side, side), tiles.dtype)
    both = grid.at[right, left].set(tiles.transpose(0, 2, 1)).at[left, right].set(tiles)
    return both.transpose(0, 2, 1, 3).reshape(blocks * side, blocks * side)[:size, :size]


@dataclasses.dataclass(frozen=True)
class Native:
    """Tiles, moved by `packed.cc`; a batch (vmap) is one call."""

    side: int = 32

    def pack(self, cov: Float[Array, " p"] | Float[Array, "p p"]) -> Tiles:
        """One triangle."""
        return pack(cov, self.side)

    def unpack(self, base: Tiles, size: int) -> Float[Array, "p p"]:
        """C in full."""
        return unpack(base, size)

    def multiply(self, base: Tiles, rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Rows C: every tile read once, used as itself and transposed."""
        return multiply(TARGET, base, rows[:0], 0, rows)

    def fold(
        self,
        base: Tiles,
        rows: Float[Array, "b p"],
        count: Int[Array, ""],
        scale: Float[Array, ""],
        limit: Float[Array, ""],
    ) -> Tiles:
        """C <- H scale (C - U'U) H in the same memory; nothing is touched where nothing waits."""
        return fold(TARGET, base, rows, count, scale, limit)
