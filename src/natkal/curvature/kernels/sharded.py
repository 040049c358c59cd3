"""C with its rows spread over a mesh of devices: only rows C, p numbers for each row, crosses between them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from natkal.curvature.kernels.deferred import Full, folded_variances, own_slice
from natkal.curvature.limits import holds
from natkal.typing import Array, Float, Int


@dataclasses.dataclass(frozen=True)
class Sharded:
    """Each device keeps as many rows of C as any other (the last ones filled up with zeros) and folds its own."""

    mesh: Mesh
    full: Full = dataclasses.field(default_factory=Full)

    def pack(self, cov: Float[Array, " p"] | Float[Array, "p p"]) -> Float[Array, "q p"]:
        """Rows to their devices; variances never become a full matrix anywhere."""
        size = len(cov)
        height = -(-size // self.mesh.size)
        if cov.ndim == 2:
            padded = jnp.pad(cov, ((0, height * self.mesh.size - size), (0, 0)))
            return jax.device_put(padded, NamedSharding(self.mesh, self._by_row))

        def mine(cov: Float[Array, " p"]) -> Float[Array, "h p"]:
            row = jax.lax.axis_index(self.mesh.axis_names) * height + jnp.arange(height)
            return jnp.where(row[:, None] == jnp.arange(size)[None, :], cov[None, :], 0.0)

        return jax.jit(self._everywhere(mine, (PartitionSpec(),), self._by_row))(cov)

    def unpack(self, base: Float[Array, "q p"], size: int) -> Float[Array, "p p"]:
        """C in full."""
        return base[:size]

    def multiply(self, base: Float[Array, "q p"], rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Each device its own columns of the result, then all of them to everyone."""

        def mine(base: Float[Array, "h p"], rows: Float[Array, "m p"]) -> Float[Array, "m q"]:
            return jax.lax.all_gather(self.full.multiply(base, rows), self.mesh.axis_names, axis=1, tiled=True)

        everywhere = self._everywhere(mine, (self._by_row, PartitionSpec()), PartitionSpec())
        return everywhere(base, rows)[:, : rows.shape[1]]

    def fold(
        self,
        base: Float[Array, "q p"],
        rows: Float[Array, "b p"],
        count: Int[Array, ""],
        scale: Float[Array, ""],
        limit: Float[Array, ""],
    ) -> Float[Array, "q p"]:
        """C <- H scale (C - U'U) H, each device its rows; H is made of p numbers that cross between them."""
        height, size = base.shape[0] // self.mesh.size, rows.shape[1]
        left = jnp.pad(rows, ((0, 0), (0, base.shape[0] - size)))

        def mine(base: Array, left: Array, rows: Array, count: Array, scale: Array, limit: Array) -> Array:
            first = jax.lax.axis_index(self.mesh.axis_names) * height
            own = jax.lax.dynamic_slice_in_dim(left, first, height, axis=1)
            diagonal = base[jnp.arange(height), jnp.minimum(first + jnp.arange(height), size - 1)]
            down = holds(folded_variances(diagonal, own, count, scale), limit)
            across = jax.lax.all_gather(down, self.mesh.axis_names, tiled=True)[None, :size]
            return self.full.fold_rows(
                base, own, rows, count, scale, lambda part, first: part * own_slice(down, part, first) * across
            )

        replicated = (PartitionSpec(),) * 5
        everywhere = self._everywhere(mine, (self._by_row, *replicated), self._by_row)
        return everywhere(base, left, rows, count, scale, limit)

    @property
    def _by_row(self) -> PartitionSpec:
        return PartitionSpec(self.mesh.axis_names)

    def _everywhere(self, function: Callable[..., Any], in_specs: Any, out_specs: Any) -> Callable[..., Any]:
        return jax.shard_map(function, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
