"""How a call from Python runs: tables in double precision, errors as `ValueError`s in the words of Python."""

import contextlib
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

import jax

from natkal.errors import StreamError


@contextlib.contextmanager
def table_call() -> Iterator[None]:
    """Double precision inside; what stops a run becomes a `ValueError` that names options as Python spells them."""
    try:
        with jax.enable_x64(True):
            yield
    except StreamError as error:
        text = re.sub(r"--([a-z][a-z-]*[a-z])", lambda found: found[1].replace("-", "_"), str(error))
        raise ValueError(text) from error


class TemporaryFolder:
    """A folder that is removed with this object."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="natkal-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
