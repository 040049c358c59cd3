"""How JAX is set up for streams, before it starts."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

# A loop whose arrays are smaller than this becomes one machine-code function instead of a list of kernels to dispatch:
# for a model of ten weights that is the difference between 4 and 0.6 microseconds a row.
INLINE = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=4000000"
NO_LIBRARY = {"xla_cpu_experimental_ynn_fusion_type": ""}


def inline_loops() -> None:
    """Set the compiler for long loops of small steps, where it has not started yet."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_extra_options" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {INLINE}".strip()


def in_the_calling_thread() -> None:
    """Let a CPU compute where it is asked, unless told otherwise: waking another thread takes longer than a row."""
    import jax

    if "JAX_CPU_ENABLE_ASYNC_DISPATCH" not in os.environ:
        jax.config.update("jax_cpu_enable_async_dispatch", False)


def as_one_function(work: Callable) -> Callable:
    """`work` under `jax.jit`, as one machine-code function on a CPU: for programs of a few microseconds.

    Otherwise its dozens of kernels are handed from thread to thread, which takes longer than they do. Two things the
    compiler cannot do here: call a library (no factorisation), and drop an argument that turns out not to matter.
    """
    import jax
    from jax.experimental.xla_metadata import set_xla_metadata

    inner = jax.jit(work, inline=False)

    def tagged(*arguments: Any) -> Any:
        if jax.default_backend() != "cpu":
            return work(*arguments)
        first, *others = jax.tree.leaves(found := inner(*arguments))
        marked = set_xla_metadata(first, xla_cpu_small_call="true", inlineable="false")  # marks what made it: the call
        return jax.tree.unflatten(jax.tree.structure(found), [marked, *others])

    return jax.jit(tagged, compiler_options=loop_options())


@functools.cache
def loop_options() -> dict[str, str]:
    """What `jax.jit(compiler_options=...)` is to be told about a loop of small steps, where this compiler knows it.

    Small products handed to a library of kernels keep the loop around them from becoming one function: a row with two
    outputs then costs ten times as much.
    """
    import jax

    try:
        jax.jit(lambda x: x, compiler_options=NO_LIBRARY).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:  # no such option any more
        return {}
    return NO_LIBRARY


@contextlib.contextmanager
def stream_numbers() -> Iterator[None]:
    """Double precision inside, and loops inlined."""
    inline_loops()
    import jax

    with jax.enable_x64(True):
        yield
