"""How the dense filter keeps and moves its matrix, and which way is best here."""

import functools
from typing import Any

import jax
from jax.sharding import Mesh

from natkal.curvature.kernels import native
from natkal.curvature.kernels.base import Kernel
from natkal.curvature.kernels.deferred import Deferred, Full, Waiting
from natkal.curvature.kernels.immediate import Immediate
from natkal.curvature.kernels.packed import Native
from natkal.curvature.kernels.root import DeferredRoot, ImmediateRoot, RootKernel, WaitingRoot

KERNELS = ("jax", "immediate", "deferred", "cpu", "gpu")
DEFER_FROM = 300
"""Parameters from which it pays to let corrections wait."""

# Full float32 from a GPU's matrix units, in three passes.
GPU_FLOAT32 = "TF32_TF32_F32_X3"


@functools.lru_cache(maxsize=64)
def choose(kernel: str | None, mesh: Mesh | None, size: int, platform: str) -> Kernel:
    """The kernel of this name, or the fastest one there is for `size` parameters on this platform."""
    full = _full(platform)
    if mesh is not None:
        from natkal.curvature.kernels.sharded import Sharded

        return Deferred(name="sharded", layout=Sharded(mesh=mesh, full=full), capacity=_capacity(size, platform))
    match kernel or _fastest(size, platform):
        case "immediate":
            return Immediate()
        case "jax" if size < DEFER_FROM:
            return Immediate()
        case "cpu":
            if platform != "cpu" or not native.available():
                raise ValueError("kernel: 'cpu' needs a C++ compiler (g++ or clang++) on Linux and a CPU to run on")
            return Deferred(name="cpu", layout=Native(), capacity=_capacity(size, platform))
        case "gpu":
            from natkal.curvature.kernels.gpu import Triton

            layout = Triton() if platform == "gpu" else Triton(side=16, group=2, chunk=4, interpret=True)
            return Deferred(name="gpu", layout=layout, capacity=128 if size >= 16_384 else 32)
        case _:
            return Deferred(name="deferred", layout=full, capacity=_capacity(size, platform))


def best(kernel: str | None, mesh: Mesh | None, size: int) -> Kernel:
    """`choose` for the platform that arrays live on by default."""
    return choose(kernel, mesh, size, jax.default_backend())


def best_root(kernel: str | None, size: int) -> RootKernel:
    """The kernel of this name for a square root, or the fastest one for so many parameters."""
    if (kernel or ("immediate" if size < DEFER_FROM else "deferred")) == "immediate":
        return ImmediateRoot()
    platform = jax.default_backend()
    return DeferredRoot(layout=_full(platform), capacity=_capacity(size, platform))


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
    return "cpu" if platform == "cpu" and native.available() else "deferred"


def _capacity(size: int, platform: str) -> int:
    """Rows that wait: enough to make folds rare, few beside the matrix."""
    if platform == "gpu" and size >= 16_384:
        return 256
    return 64 if size >= 2_048 else 40


__all__ = ["KERNELS", "Kernel", "RootKernel", "best", "best_root", "choose", "size_of"]
