"""Running a function once: compiling it takes longer than running it, so compile in a hurry."""

from collections.abc import Callable
from typing import Any

import jax

QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
"""Compiler settings that make slower code of the same arithmetic, in a quarter of the time."""


def run_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)`, compiled as one program; with the default settings where the compiler knows not these."""
    lowered = jax.jit(function).lower(*arguments)
    try:
        compiled = lowered.compile(compiler_options=QUICK)
    except jax.errors.JaxRuntimeError:
        compiled = lowered.compile()
    return compiled(*arguments)
