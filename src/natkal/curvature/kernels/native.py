"""The compiled kernels for CPUs: built once from the C++ files here where there is a C++ compiler, absent elsewhere.

A library is code that this process will run. It lies in a folder that only the user may write, and its SHA-256 digest
lies beside it; a library whose digest differs (changed, truncated) is built anew, and one in a folder that others may
write is neither loaded nor built.
"""

import ctypes
import functools
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.ffi

from natkal.compiling.user_folder import private_folder, processor

LOG = logging.getLogger(__name__)
FOLDER = Path(__file__).parent
SOURCES = ("packed.cc", "small.cc")
HEADERS = ("team.h", "build.py")
CALLS = ("packed_multiply", "packed_advance", "small_multiply", "small_advance", "small_wait")
TARGETS = tuple(f"natkal_{call}_{kind}" for call in CALLS for kind in ("f32", "f64"))
KINDS = ("NATKAL_F32", "NATKAL_F64")
"""Each source is compiled once for each kind of number, all at the same time."""
SILENT_SECONDS, BUILD_SECONDS, GIVE_UP_SECONDS = 2, 20, 300
"""When a build is spoken of; when the process goes on without it; when the compiler is stopped."""
FLAGS = ("-O2", "-march=native", "-std=c++17", "-fPIC", "-w")


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
    except (OSError, AttributeError, subprocess.SubprocessError) as reason:
        LOG.info("natkal: no compiled kernels: %s", reason)
        return False
    return True


def _built() -> Path:
    """The shared library for this source, compiler, processor and jaxlib; compiled if it is not there yet."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise OSError("no C++ compiler")
    text = [(FOLDER / name).read_text() for name in (*SOURCES, *HEADERS)]
    stamp = "\n".join([*text, compiler, *FLAGS, jax.__version__, processor()])
    library = private_folder("kernels") / f"kernels-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}.so"
    if not _is_whole(library):
        flags = [*FLAGS, f"-I{jax.ffi.include_dir()}"]
        parts = [[str(FOLDER / name), f"-D{kind}"] for name in SOURCES for kind in KINDS]
        _build({"compiler": [compiler, *flags], "parts": parts, "library": str(library), "seconds": GIVE_UP_SECONDS})
        if not _is_whole(library):
            raise OSError(f"{compiler}: could not build the kernels")
    return library


def _is_whole(library: Path) -> bool:
    """Whether the library is the one that was built: a plain file with the digest that lies beside it."""
    try:
        digest = library.with_suffix(".sha256").read_text().strip()
        return not library.is_symlink() and hashlib.sha256(library.read_bytes()).hexdigest() == digest
    except (OSError, UnicodeDecodeError):
        return False


def _build(asked: dict[str, Any]) -> None:
    """Start `build.py`, say so where it takes longer than a moment, and wait for it for `BUILD_SECONDS` at most."""
    builder = subprocess.Popen(
        [sys.executable, "-I", str(FOLDER / "build.py"), json.dumps(asked)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        builder.wait(timeout=SILENT_SECONDS)
    except subprocess.TimeoutExpired:
        what = f"natkal: building its kernels for this processor with {asked['compiler'][0]}, once"
        print(f"{what} (NATKAL_NATIVE=0 does without)", file=sys.stderr)
        try:
            builder.wait(timeout=BUILD_SECONDS - SILENT_SECONDS)
        except subprocess.TimeoutExpired:
            builder.returncode = 0  # it goes on by itself, and nobody waits for it
            print("natkal: that takes long; going on without them, the next process may have them", file=sys.stderr)
            raise
