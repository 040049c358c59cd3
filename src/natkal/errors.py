"""What stops a run, in the user's words."""

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class StreamError(Exception):
    """A run cannot start or go on; the message says why and what to do."""


class Stopped(Exception):
    """The user asked to end while the run was waiting for more rows."""


class CheckpointError(StreamError):
    """A checkpoint file is damaged, or is not the one asked for."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question that names the known word most like this one, with a space behind it; empty where none is like it."""
    names = list(known)
    lower = {name.lower(): name for name in reversed(names)}
    found = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return f"did you mean {lower[found[0]]!r}? " if found else ""


@contextmanager
def located(where: Callable[[], str]) -> Iterator[None]:
    """Turn any failure inside that nobody foresaw into a `StreamError` that names the place."""
    try:
        yield
    except (StreamError, Stopped):
        raise
    except Exception as error:
        raise StreamError(f"{where()}: {type(error).__name__}: {error}") from error
