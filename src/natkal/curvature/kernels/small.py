"""Small matrices of many learners, in full, moved by `small.cc`: a batch (vmap) is one call, each matrix read once."""

import dataclasses

from natkal.curvature.kernels.deferred import Full, Waiting
from natkal.curvature.kernels.fused import Fused, fold, multiply, wait
from natkal.typing import Array, Float, Int

TARGET = "small"


@dataclasses.dataclass(frozen=True)
class Small(Full):
    """C as a p x p matrix that fits in the first-level cache."""

    def multiply(self, base: Float[Array, "p p"], rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Rows C."""
        return multiply(TARGET, base, rows[:0], 0, rows)

    def fold(
        self,
        base: Float[Array, "p p"],
        rows: Float[Array, "b p"],
        count: Int[Array, ""],
        scale: Float[Array, ""],
        limit: Float[Array, ""],
    ) -> Float[Array, "p p"]:
        """C <- H scale (C - U'U) H in the same memory."""
        return fold(TARGET, base, rows, count, scale, limit)


@dataclasses.dataclass(frozen=True)
class Batch(Fused):
    """`Fused` for a fleet: under vmap, XLA would turn the writing of a row that waits into a slow scatter."""

    def _wait(self, store: Waiting, down: Float[Array, "r p"]) -> Waiting:
        rows = wait(self.target, store.rows, down, store.used, store.scale)
        return store._replace(rows=rows, used=store.used + len(down))
