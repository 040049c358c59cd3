"""Build one shared library, as a script of its own that imports nothing of natkal: `native.py` starts it.

It outlives the process that started it, so that a build which takes longer than anybody waits for is there next time.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path


def build(compiler: list[str], parts: list[list[str]], library: Path) -> None:
    """Compile each of `parts` (the arguments of one object file) at the same time, link, and put the library in place.

    The digest is written first: a library without its own digest is never loaded.
    """
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        objects = [f"{folder}/{number}.o" for number in range(len(parts))]
        started = [
            subprocess.Popen([*compiler, *part, "-c", "-o", made]) for part, made in zip(parts, objects, strict=True)
        ]
        codes = [process.wait() for process in started]
        if any(codes):
            sys.exit(1)
        made = Path(folder) / library.name
        subprocess.run([*compiler, "-shared", *objects, "-o", str(made)], check=True)
        digest = made.with_suffix(".sha256")
        digest.write_text(hashlib.sha256(made.read_bytes()).hexdigest())
        os.replace(digest, library.with_suffix(".sha256"))
        os.replace(made, library)


def _give_up() -> None:
    """End this script and every compiler it has started: they are one process group."""
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    watch = threading.Timer(given["seconds"], _give_up)
    watch.daemon = True
    watch.start()
    build(given["compiler"], given["parts"], Path(given["library"]))
