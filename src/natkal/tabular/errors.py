"""What stops a run, in the user's words."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StreamError(Exception):
    """A run cannot start or go on; the message says why and what to do."""


class Stopped(Exception):
    """The user asked to end while the run was waiting for more rows."""


class CheckpointError(StreamError):
    """A checkpoint file is damaged, or is not the one asked for."""


@contextmanager
def located(where: Callable[[], str]) -> Iterator[None]:
    """Turn any failure inside that nobody foresaw into a `StreamError` that names the place."""
    try:
        yield
    except (StreamError, Stopped):
        raise
    except Exception as error:
        raise StreamError(f"{where()}: {type(error).__name__}: {error}") from error
