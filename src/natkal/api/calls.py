"""How a call from Python runs: tables in double precision, errors as `ValueError`s in the words of Python."""

import contextlib
import re
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path

import jax

from natkal.errors import StreamError
from natkal.runs.session import Session


@contextlib.contextmanager
def table_call() -> Iterator[None]:
    """Double precision inside; what stops a run becomes a `ValueError` that names options as Python spells them."""
    try:
        with jax.enable_x64(True):
            yield
    except StreamError as error:
        raise ValueError(in_python(str(error))) from error


def in_python(text: str) -> str:
    """Options as Python spells them."""
    return re.sub(r"--([a-z][a-z-]*[a-z])", lambda found: found[1].replace("-", "_"), text)


def warn_of(session: Session) -> None:
    """Warn of what a person should know at the end of a run, as the command's closing lines do."""
    for sentence in session.warnings():
        warnings.warn(in_python(sentence), stacklevel=3)


class TemporaryFolder:
    """A folder that is removed with this object."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="natkal-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
