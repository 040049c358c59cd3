"""How JAX is set up for streams, before it starts."""

import atexit
import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# A loop whose arrays are smaller than this becomes one machine-code function instead of a list of kernels to dispatch:
# for a model of ten weights that is the difference between 4 and 0.6 microseconds a row.
INLINE = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=4000000"


def inline_loops() -> None:
    """Set the compiler for long loops of small steps, where it has not started yet."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_extra_options" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {INLINE}".strip()


def jit_small(function: Callable[..., Any], *, donate_argnums: int | tuple[int, ...] = ()) -> Callable[..., Any]:
    """`jax.jit` for a loop of small steps: its matrix products stay in the loop's own code.

    As calls of a library they would have the whole loop dispatched kernel by kernel: 11 instead of 0.7 microseconds a
    row for a real target. A compiler that does not know the option does without it. `engine.compact` chooses its
    program by the size of the state; here that must not change along a run, nor the bits with it.
    """
    import jax

    from natkal.drivers.compact import PLAIN_PRODUCTS

    inside = jax.jit(function, donate_argnums=donate_argnums, compiler_options=PLAIN_PRODUCTS)
    plain = jax.jit(function, donate_argnums=donate_argnums)

    def call(*arguments: Any) -> Any:
        try:
            return inside(*arguments)
        except jax.errors.JaxRuntimeError as error:
            if "No such compile option" not in str(error):
                raise
        return plain(*arguments)

    return call


def in_the_calling_thread() -> None:
    """Let a CPU compute where it is asked, unless told otherwise: waking another thread takes longer than a row."""
    import jax

    if "JAX_CPU_ENABLE_ASYNC_DISPATCH" not in os.environ:
        jax.config.update("jax_cpu_enable_async_dispatch", False)


@contextlib.contextmanager
def stream_numbers() -> Iterator[None]:
    """Double precision inside."""
    import jax

    with jax.enable_x64(True):
        yield


@contextlib.contextmanager
def command() -> Iterator[None]:
    """`stream_numbers` for a command that has the process to itself: loops inlined, compiled programs kept."""
    inline_loops()
    sys.setswitchinterval(5e-4)  # the reader asks for the interpreter often, and briefly
    with stream_numbers():
        keep_programs()
        yield


def keep_programs() -> None:
    """Compile only what no earlier command has; nothing is kept where the cache folder cannot be written.

    JAX writes its cache in place, so a kill could leave half a program behind. It therefore gets a folder of this
    process alone, with links to what there is; what is new is moved to the others, whole, when the process ends.
    """
    import jax

    from natkal.drivers.cache import compilation_cache, program_folder

    chosen: Any = jax.config
    if chosen.jax_compilation_cache_dir or not chosen.jax_enable_compilation_cache:
        return
    with contextlib.suppress(OSError):
        own = _linked(program_folder())
        atexit.register(_hand_over, own)
        compilation_cache(own)
        jax.config.update("jax_persistent_cache_enable_xla_caches", "none")  # their path would be part of a name


def _hand_over(own: Path) -> None:
    """Move what this process has compiled to where the next one looks."""
    with contextlib.suppress(OSError):
        for made in own.iterdir():
            os.replace(made, own.parent / made.name)
    shutil.rmtree(own, ignore_errors=True)


def _linked(folder: Path) -> Path:
    """A folder of this process inside `folder`, with links to all programs there; those of dead processes go."""
    own = folder / f"process-{os.getpid()}"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    for entry in folder.iterdir():
        if entry.is_file():
            os.link(entry, own / entry.name)
        elif entry != own and not _alive(int(entry.name.rpartition("-")[2])):
            shutil.rmtree(entry, ignore_errors=True)
    return own


def _alive(process: int) -> bool:
    """Whether there is such a process; one of another user counts."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
