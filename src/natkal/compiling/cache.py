"""Compiled programs kept between runs, so that the next start does not compile again."""

import hashlib
from pathlib import Path

import jax

from natkal.compiling.user_folder import cache_folder, forget_oldest, processor

LARGEST = 256 << 20
"""Bytes of compiled programs that natkal's own folder keeps; the oldest give way."""


def compilation_cache(folder: str | Path | None = None) -> Path:
    """Keep what JAX compiles in `folder` (`natkal/compiled` in the user's cache folder unless given), from now on.

    The same as JAX's own variables JAX_COMPILATION_CACHE_DIR and JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS. Call it
    before the first step; it returns the folder. Who can write there decides what runs: choose one of your own.
    """
    kept = program_folder() if folder is None else Path(folder)
    kept.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(kept))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    return kept


def program_folder() -> Path:
    """The user's own folder of programs for this kind of processor: another one's may not run here."""
    folder = cache_folder() / "compiled" / hashlib.sha256(processor().encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    forget_oldest(folder, LARGEST)
    return folder
