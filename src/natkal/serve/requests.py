"""One request for the writer: what is asked, its rows, its answer; and what a client may ask for."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from natkal.serve.rows import Refused

PREDICT, LEARN, PREDICT_LEARN, DECIDE, REWARD = 1, 2, 3, 4, 5
KINDS = {"predict": PREDICT, "learn": LEARN, "predict_learn": PREDICT_LEARN, "decide": DECIDE, "reward": REWARD}
"""What is asked, by path; the numbers are those of the log's records."""


@dataclasses.dataclass(eq=False)
class Request:
    """One request for the writer: what is asked, its rows, and where the answer goes."""

    kind: int
    body: bytes
    rows: list[dict[str, Any]]
    single: bool
    done: Callable[["Request"], None] = lambda request: None
    answer: Any = None
    refused: Refused | None = None
    ids: Sequence[str] = ()
    future: Any = None
    ticket: list[bool] = dataclasses.field(default_factory=lambda: [True])

    def take(self) -> bool:
        """Whether the caller is the first to take it: the writer to learn it, or the event loop to give it up."""
        try:
            return self.ticket.pop()
        except IndexError:
            return False


def check_names(
    rows: Sequence[dict[str, Any]],
    known: Iterable[str],
    allowed: set[str],
    missing: Callable[[Iterable[str]], list[str]] | None = None,
    labels: Collection[int] = (),
) -> None:
    """Refuse a row with a column that is not `allowed`, or without one that is needed, as `missing` tells.

    Of `labels` (places from 0) the features are known already.
    """
    for number, row in enumerate(rows, 1):
        unknown = row.keys() - allowed
        if unknown:
            names = sorted(known)
            listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            raise Refused(422, f"row {number:,}: column {min(unknown)!r:.60} is unknown; the model has {listed}")
        lacking = [] if missing is None or number - 1 in labels else missing(row)
        if lacking:
            listed = ", ".join(lacking[:5]) + (", ..." if len(lacking) > 5 else "")
            raise Refused(
                422, f"row {number:,}: has no column {listed}, which the model was trained on; null says it is missing"
            )
