"""Where this user's compiled programs lie, and which processor they are for."""

import os
import platform
from pathlib import Path


def cache_folder() -> Path:
    """Where compiled kernels stay: $NATKAL_CACHE, or `natkal` in the user's cache folder."""
    given = os.environ.get("NATKAL_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "natkal"


def processor() -> str:
    """What `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
