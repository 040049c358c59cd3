"""How the dense filter keeps and moves its matrix, and which way is best here."""

import functools
from typing import Any

import jax

from natkal.curvature.kernels import native
from natkal.curvature.kernels.base import Kernel
from natkal.curvature.kernels.deferred import Deferred, Full, Waiting
from natkal.curvature.kernels.immediate import Immediate
from natkal.curvature.kernels.packed import Native

KERNELS = ("jax", "immediate", "deferred", "cpu")
DEFER_FROM = {"cpu": 300, "gpu": 2_000}
"""Parameters from which it pays to let corrections wait, by platform."""


@functools.lru_cache(maxsize=64)
def choose(kernel: str | None, size: int, platform: str) -> Kernel:
    """The kernel of this name, or the fastest one there is for `size` parameters on this platform."""
    if kernel is None:
        if size < DEFER_FROM.get(platform, 2_000):
            kernel = "immediate"
        elif platform == "cpu" and native.available():
            kernel = "cpu"
    match kernel:
        case "immediate":
            return Immediate()
        case "cpu":
            if platform != "cpu" or not native.available():
                raise ValueError("kernel: 'cpu' needs a C++ compiler (g++ or clang++) on Linux and a CPU to run on")
            return Deferred(name="cpu", layout=Native(), capacity=_capacity(size))
        case "jax" if size < DEFER_FROM.get(platform, 2_000):
            return Immediate()
        case _:
            return Deferred(name="deferred", layout=Full(), capacity=_capacity(size))


def best(kernel: str | None, size: int) -> Kernel:
    """`choose` for the platform that arrays live on by default."""
    return choose(kernel, size, jax.default_backend())


def size_of(store: Any) -> int:
    """How many parameters a store is for."""
    return store.rows.shape[-1] if isinstance(store, Waiting) else store.shape[-1]


def _capacity(size: int) -> int:
    """Rows that wait: enough to make folds rare, few beside the matrix."""
    return 64 if size >= 2_048 else 32


__all__ = ["KERNELS", "Kernel", "best", "choose", "size_of"]
