"""Corrections that wait, compiled: one call folds them, multiplies by C and takes off what still waits."""

import dataclasses
from typing import Any

import jax
import jax.ffi
import jax.numpy as jnp

from natkal.curvature.kernels.base import Advanced
from natkal.curvature.kernels.deferred import Deferred, Waiting, folded
from natkal.typing import Array, Float, Int


@dataclasses.dataclass(frozen=True)
class Fused(Deferred):
    """`Deferred` around a layout for which `target` names compiled calls."""

    target: str

    def multiply(self, store: Waiting, rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Scale (rows C - (rows U') U), reading C and U once."""
        return store.scale * multiply(self.target, store.base, store.rows, store.used, rows)

    def advance(self, store: Waiting, rows: Float[Array, "m p"]) -> Advanced:
        """Fold if it is time to and multiply, in one pass over C."""
        due = self.due(store, len(rows))
        count = jnp.where(due, store.used, 0)
        base, products, gram = _advance(
            self.target, store.base, store.rows, count, store.scale, store.used - count, store.limit, rows
        )
        settled = folded(store, base, due)
        return Advanced(store=settled, images=settled.scale * products, gram=settled.scale * gram)


def multiply(
    target: str, base: Any, waiting: Float[Array, "b p"], live: Int[Array, ""] | int, rows: Float[Array, "m p"]
) -> Float[Array, "m p"]:
    """Rows C - (rows U') U, U the first `live` rows that wait."""
    return _call(f"{target}_multiply", rows)(base, waiting, jnp.asarray(live, jnp.int32), rows)


def fold(
    target: str,
    base: Any,
    waiting: Float[Array, "b p"],
    count: Int[Array, ""],
    scale: Float[Array, ""],
    limit: Float[Array, ""],
) -> Any:
    """C <- H scale (C - U'U) H in the same memory."""
    return _advance(target, base, waiting, count, scale, jnp.zeros_like(count), limit, waiting[:0])[0]


def wait(
    target: str, waiting: Float[Array, "b p"], down: Float[Array, "r p"], used: Int[Array, ""], scale: Float[Array, ""]
) -> Float[Array, "b p"]:
    """The rows `down / sqrt(scale)` into U from row `used` on, in the same memory; what is not finite becomes zero."""
    return _call(f"{target}_wait", waiting, input_output_aliases={0: 0})(waiting, down, used, scale)


def _advance(
    target: str,
    base: Any,
    waiting: Float[Array, "b p"],
    count: Int[Array, ""],
    scale: Float[Array, ""],
    live: Int[Array, ""],
    limit: Float[Array, ""],
    rows: Float[Array, "m p"],
) -> tuple[Any, Float[Array, "m p"], Float[Array, "m m"]]:
    gram = jax.ShapeDtypeStruct((len(rows), len(rows)), rows.dtype)
    call = _call(f"{target}_advance", base, rows, gram, input_output_aliases={0: 0})
    return tuple(call(base, waiting, count, scale, live, limit, rows))


def _call(name: str, *like: Array | jax.ShapeDtypeStruct, **options: Any) -> Any:
    kind = {"float32": "f32", "float64": "f64"}[str(like[0].dtype)]
    results = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in like]
    result = results[0] if len(results) == 1 else results
    return jax.ffi.ffi_call(f"natkal_{name}_{kind}", result, vmap_method="broadcast_all", **options)
