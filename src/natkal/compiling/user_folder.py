"""Where what natkal compiles for this user lies, and which processor it is for."""

import contextlib
import os
import platform
import stat
from pathlib import Path

KEPT = ("kernels", "compiled", "programs")
"""The folders in it: kernels of C++, what JAX keeps by itself, and natkal's own programs, kept whole."""


def cache_folder() -> Path:
    """Where compiled kernels and programs stay: $NATKAL_CACHE, or `natkal` in the user's cache folder."""
    given = os.environ.get("NATKAL_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "natkal"


def private_folder(name: str) -> Path:
    """A folder for code that belongs to this user and that nobody else may write; an `OSError` where it is not."""
    folder = cache_folder() / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder}: must be a folder of this user alone (chmod 700)")
    return folder


def kept_files() -> list[Path]:
    """Every kernel and program that is kept for this user."""
    return [path for name in KEPT for path in sorted((cache_folder() / name).rglob("*")) if path.is_file()]


def forget_oldest(folder: Path, largest: int) -> None:
    """Delete the files that were written longest ago down to half of `largest` bytes, once these are exceeded."""
    with contextlib.suppress(OSError):  # another process may be tidying up at the same time
        files = [entry for entry in folder.iterdir() if entry.is_file()]
        entries = sorted(((entry.stat(), entry) for entry in files), key=lambda pair: pair[0].st_mtime)
        held = sum(status.st_size for status, _ in entries)
        if held > largest:
            for status, entry in entries:
                if held <= largest // 2:
                    break
                entry.unlink(missing_ok=True)
                held -= status.st_size


def processor() -> str:
    """What `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
