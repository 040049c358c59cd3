"""How the dense filter keeps and moves its matrix, and which way is best here."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from natkal.curvature.kernels import native
from natkal.curvature.kernels.base import Kernel
from natkal.curvature.kernels.deferred import Deferred, Full, Waiting
from natkal.curvature.kernels.fused import Fused
from natkal.curvature.kernels.immediate import Immediate
from natkal.curvature.kernels.packed import Native
from natkal.curvature.kernels.root import DeferredRoot, ImmediateRoot, RootKernel, WaitingRoot
from natkal.curvature.kernels.small import Batch, Small

KERNELS = ("jax", "immediate", "deferred", "cpu", "gpu", "batch")
DEFER_FROM = 300
"""Parameters from which it pays to let corrections wait."""
BATCH_CAPACITY = 4
"""Rows that wait in kernel "batch" unless a number is given; `nk.fleet` gives the rows of one observation."""
TRITON_FROM = 4_096
"""Parameters from which one triangle is the faster on a GPU."""

# Full float32 from a GPU's matrix units, in three passes.
GPU_FLOAT32 = "TF32_TF32_F32_X3"


@functools.lru_cache(maxsize=64)
def choose(kernel: str | None, mesh: Mesh | None, size: int, platform: str, waiting: int | None = None) -> Kernel:
    """The kernel of this name, or the fastest one there is for `size` parameters on this platform.

    `waiting` is how many rows wait in kernel "batch".
    """
    full = _full(platform)
    if mesh is not None:
        from natkal.curvature.kernels.sharded import Sharded

        return Deferred(name="sharded", layout=Sharded(mesh=mesh, full=full), capacity=_capacity(size, platform))
    match kernel or _fastest(size, platform):
        case "immediate":
            return Immediate()
        case "batch" if platform == "cpu" and size < DEFER_FROM and native.available():
            return Batch(name="batch", layout=Small(), capacity=waiting or BATCH_CAPACITY, target="small")
        case "batch":
            return choose(None, mesh, size, platform)
        case "jax" if size < DEFER_FROM:
            return Immediate()
        case "cpu":
            if platform != "cpu" or not native.available():
                raise ValueError("kernel: 'cpu' needs a C++ compiler (g++ or clang++) on Linux and a CPU to run on")
            return Fused(name="cpu", layout=Native(), capacity=_capacity(size, platform), target="packed")
        case "gpu":
            from natkal.curvature.kernels.gpu import Triton

            layout = Triton() if platform == "gpu" else Triton.interpreted()
            return Deferred(name="gpu", layout=layout, capacity=_capacity(size, platform))
        case _:
            return Deferred(name="deferred", layout=full, capacity=_capacity(size, platform))


def best(kernel: str | None, mesh: Mesh | None, size: int, waiting: int | None = None) -> Kernel:
    """`choose` for the platform that arrays live on by default."""
    return choose(kernel, mesh, size, jax.default_backend(), waiting)


def best_root(kernel: str | None, size: int) -> RootKernel:
    """The kernel of this name for a square root, or the fastest one for so many parameters."""
    if (kernel or ("immediate" if size < DEFER_FROM else "deferred")) == "immediate":
        return ImmediateRoot()
    platform = jax.default_backend()
    full = _full(platform)
    # The lengths of a stripe's rows are summed before it is written, so that two stripes are in memory at once.
    halved = dataclasses.replace(full, stripe=full.stripe // 2)
    return DeferredRoot(layout=halved, capacity=_capacity(size, platform))


def size_of(store: Any) -> int:
    """How many parameters a store is for."""
    if isinstance(store, WaitingRoot):
        return store.left.shape[-1]
    return store.rows.shape[-1] if isinstance(store, Waiting) else store.shape[-1]


def _full(platform: str) -> Full:
    return Full(precision=GPU_FLOAT32, stripe=2_048) if platform == "gpu" else Full()


def _fastest(size: int, platform: str) -> str:
    if size < DEFER_FROM:
        return "immediate"
    if platform == "gpu" and size >= TRITON_FROM and _halves_suffice():
        return "gpu"
    return "cpu" if platform == "cpu" and native.available() else "deferred"


def _halves_suffice() -> bool:
    """Whether the GPU is one that the Triton programs were written for, and float32 what is computed in."""
    generation = str(getattr(jax.devices()[0], "compute_capability", "")).split(".")[0]
    return generation.isdigit() and int(generation) >= 8 and jnp.result_type(float) == jnp.float32


def _capacity(size: int, platform: str) -> int:
    """Rows that wait: enough to make folds rare, few beside the matrix."""
    if platform == "gpu" and size >= 16_384:
        return 256
    return 64 if size >= 2_048 else 40


__all__ = ["KERNELS", "Immediate", "Kernel", "RootKernel", "best", "best_root", "choose", "size_of"]
