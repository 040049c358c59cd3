"""How JAX is set up for a command, which has the process to itself: double precision, compiled programs kept."""

import atexit
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COMPILING = "natkal: compiling for tables like this one, which the next start finds done (natkal cache shows where)"


@contextlib.contextmanager
def command() -> Iterator[None]:
    """Double precision inside, and programs that were compiled before are not compiled again."""
    import jax

    sys.setswitchinterval(5e-4)  # the reader asks for the interpreter often, and briefly
    with jax.enable_x64(True):
        keep_programs()
        yield


def keep_programs() -> None:
    """Compile only what no earlier command has; nothing is kept where the cache folder cannot be written.

    JAX writes its cache in place, so a kill could leave half a program behind. It therefore gets a folder of this
    process alone, with links to what there is; what is new is moved to the others, whole, when the process ends.
    """
    import jax

    from natkal.compiling.cache import compilation_cache, program_folder
    from natkal.compiling.programs import default_folder, keep_programs_in, tell_of_compiling

    chosen: Any = jax.config
    if not chosen.jax_enable_compilation_cache:
        return
    with contextlib.suppress(OSError):
        keep_programs_in(default_folder())
        if sys.stderr.isatty():
            tell_of_compiling(lambda: print(COMPILING, file=sys.stderr))
    if chosen.jax_compilation_cache_dir:
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
