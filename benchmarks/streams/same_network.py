"""The optimisers of `benchmarks/learning`, on the tables: the same small network for each, over their grids."""

from collections.abc import Iterator

from benchmarks.streams.attempt import Attempt
from benchmarks.streams.stream import Stream
from benchmarks.streams.tables import TABLES

PACKAGE = "jax"


def attempts(stream: Stream) -> Iterator[Attempt]:
    """SGD, RMSprop, Adam, AdamW and IVON."""
    if stream.name not in TABLES:
        return
    from benchmarks.learning.rivals import RIVALS, best

    for name, rival in RIVALS.items():
        yield Attempt(name, "best of its grid", lambda rival=rival: best(rival, stream).forecast)
