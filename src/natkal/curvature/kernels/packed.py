"""C as one triangle of 32 x 32 tiles: half the memory and half the traffic, through the compiled CPU kernel."""

import dataclasses
from typing import Any

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np

from natkal.typing import Array, Bool, Float

Tiles = Float[Array, "tiles side side"]


def tile_indices(size: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Block row and block column of every tile of the lower triangle, in the order they are stored."""
    return np.tril_indices(-(-size // side))


def pack(cov: Float[Array, " p"] | Float[Array, "p p"], side: int) -> Tiles:
    """The lower triangle of tiles, padded with zeros; from variances, without a full matrix."""
    size = len(cov)
    blocks = -(-size // side)
    left, right = tile_indices(size, side)
    if cov.ndim == 1:
        padded = jnp.pad(cov, (0, blocks * side - size)).reshape(blocks, side)
        diagonal = jnp.arange(blocks) * (jnp.arange(blocks) + 3) // 2
        inside = jnp.arange(side)
        empty = jnp.zeros((len(left), side, side), cov.dtype)
        return empty.at[diagonal[:, None], inside[None, :], inside[None, :]].set(padded)
    padded = jnp.pad(cov, (0, blocks * side - size)).reshape(blocks, side, blocks, side)
    return padded.transpose(0, 2, 1, 3)[left, right]


def unpack(tiles: Tiles, size: int) -> Float[Array, "p p"]:
    """The full matrix."""
    side = tiles.shape[-1]
    blocks = -(-size // side)
    left, right = tile_indices(size, side)
    grid = jnp.zeros((blocks, blocks, side, side), tiles.dtype)
    both = grid.at[right, left].set(tiles.transpose(0, 2, 1)).at[left, right].set(tiles)
    return both.transpose(0, 2, 1, 3).reshape(blocks * side, blocks * side)[:size, :size]


@dataclasses.dataclass(frozen=True)
class Native:
    """Tiles, multiplied and folded by `packed.cc`; a batch (vmap) is one call."""

    side: int = 32

    def pack(self, cov: Float[Array, " p"] | Float[Array, "p p"]) -> Tiles:
        """One triangle."""
        return pack(cov, self.side)

    def unpack(self, base: Tiles, size: int) -> Float[Array, "p p"]:
        """C in full."""
        return unpack(base, size)

    def multiply(self, base: Tiles, rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Rows C: every tile read once, used as itself and transposed."""
        return _call("multiply", rows)(base, rows)

    def fold(
        self,
        base: Tiles,
        rows: Float[Array, "b p"],
        scale: Float[Array, ""],
        due: Bool[Array, ""],
    ) -> Tiles:
        """C <- scale (C - U'U) in the same memory; nothing is touched where it is not due."""
        return _call("fold", base, input_output_aliases={0: 0})(base, rows, scale, due.astype(jnp.int32))


def _call(name: str, like: Array, **options: Any) -> Any:
    kind = {"float32": "f32", "float64": "f64"}[str(like.dtype)]
    result = jax.ShapeDtypeStruct(like.shape, like.dtype)
    return jax.ffi.ffi_call(f"natkal_{name}_{kind}", result, vmap_method="broadcast_all", **options)
