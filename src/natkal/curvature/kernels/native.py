"""The compiled kernels for CPUs: built once from the C++ files here where there is a C++ compiler, absent elsewhere."""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.ffi

FOLDER = Path(__file__).parent
SOURCES = ("packed.cc", "small.cc")
HEADERS = ("team.h",)
CALLS = ("packed_multiply", "packed_advance", "small_multiply", "small_advance", "small_wait")
TARGETS = tuple(f"natkal_{call}_{kind}" for call in CALLS for kind in ("f32", "f64"))
FLAGS = ("-O2", "-march=native", "-std=c++17", "-shared", "-fPIC", "-w")


def cache_folder() -> Path:
    """Where compiled kernels stay: $NATKAL_CACHE, or `natkal` in the user's cache folder."""
    given = os.environ.get("NATKAL_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "natkal"


@functools.cache
def available() -> bool:
    """Whether the compiled kernel can be had here; builds and registers it the first time.

    NATKAL_NATIVE=0 does without. Any failure (no compiler, no writable folder) means no, never an error.
    """
    if os.environ.get("NATKAL_NATIVE") == "0" or sys.platform != "linux":
        return False
    try:
        library = ctypes.CDLL(str(_built()))
        for target in TARGETS:
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(library, target)), platform="cpu")
    except (OSError, AttributeError, subprocess.SubprocessError):
        return False
    return True


def _built() -> Path:
    """The shared library for this source, compiler, processor and jaxlib; compiled if it is not there yet."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise OSError("no C++ compiler")
    sources = [FOLDER / name for name in SOURCES]
    text = [path.read_text() for path in (*sources, *(FOLDER / name for name in HEADERS))]
    stamp = "\n".join([*text, compiler, *FLAGS, jax.__version__, processor()])
    library = cache_folder() / f"kernels-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            made = Path(folder) / library.name
            command = [compiler, *FLAGS, f"-I{jax.ffi.include_dir()}", *map(str, sources), "-o", str(made)]
            subprocess.run(command, check=True, capture_output=True, timeout=300)
            os.replace(made, library)
    return library


def processor() -> str:
    """What `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
