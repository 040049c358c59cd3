"""Corrections that wait, under a compiled kernel: one call folds them, multiplies by C and takes off what still waits."""

import dataclasses
from typing import Any

import jax
import jax.ffi
import jax.numpy as jnp

from natkal.curvature.kernels.deferred import Deferred, Waiting, folded
from natkal.typing import Array, Float, Int


@dataclasses.dataclass(frozen=True)
class Fused(Deferred):
    """`Deferred` around a layout whose `target` names compiled calls."""

    def multiply(self, store: Waiting, rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Scale (rows C - (rows U') U), reading C and U once."""
        return store.scale * multiply(self.layout.target, store.base, store.rows, store.used, rows)

    def advance(self, store: Waiting, rows: Float[Array, "m p"]) -> tuple[Waiting, Float[Array, "m p"]]:
        """Fold if it is time to and multiply, in one pass over C."""
        due = self.due(store, len(rows))
        count = jnp.where(due, store.used, 0)
        base, products = _advance(self.layout.target, store.base, store.rows, count, store.scale, store.used - count, rows)
        settled = folded(store, base, due)
        return settled, settled.scale * products


def multiply(
    target: str, base: Any, waiting: Float[Array, "b p"], live: Int[Array, ""], rows: Float[Array, "m p"]
) -> Float[Array, "m p"]:
    """Rows C - (rows U') U, U the first `live` rows that wait."""
    return _call(f"{target}_multiply", rows)(base, waiting, live, rows)


def fold(target: str, base: Any, waiting: Float[Array, "b p"], count: Int[Array, ""], scale: Float[Array, ""]) -> Any:
    """C <- scale (C - U'U) in the same memory."""
    return _advance(target, base, waiting, count, scale, jnp.zeros_like(count), waiting[:0])[0]


def _advance(
    target: str,
    base: Any,
    waiting: Float[Array, "b p"],
    count: Int[Array, ""],
    scale: Float[Array, ""],
    live: Int[Array, ""],
    rows: Float[Array, "m p"],
) -> tuple[Any, Float[Array, "m p"]]:
    call = _call(f"{target}_advance", base, rows, input_output_aliases={0: 0})
    return call(base, waiting, count, scale, live, rows)


def _call(name: str, *like: Array, **options: Any) -> Any:
    kind = {"float32": "f32", "float64": "f64"}[str(like[0].dtype)]
    results = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in like]
    result = results[0] if len(results) == 1 else results
    return jax.ffi.ffi_call(f"natkal_{name}_{kind}", result, vmap_method="broadcast_all", **options)
