"""The seam between the service and the run it serves: rows in, answers out, a checkpoint of all of it."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from natkal.runs.outputs import Output
from natkal.serve.requests import Request
from natkal.tables.schema.infer import Schema

Log = Callable[[list[Request]], None]
"""Writes accepted requests to the log; called before they are answered."""


@runtime_checkable
class Served(Protocol):
    """A run behind the writer. `run`, `snapshot` and `warm_up` belong to the writer's thread."""

    @property
    def kinds(self) -> frozenset[int]:
        """The requests this run takes."""
        ...

    @property
    def refusal(self) -> str:
        """The sentence for those it does not take."""
        ...

    @property
    def session(self) -> Any:
        """The session of the command that made the run."""
        ...

    def run(self, requests: list[Request], log: Log) -> None:
        """Use the requests in their order; each has an answer or a refusal afterwards."""
        ...

    def predict(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Predictions from the last whole state; nothing is kept. From any thread."""
        ...

    @property
    def schema(self) -> Schema:
        """The columns of a run that predicts."""
        ...

    def warm_up(self) -> None:
        """Compile what requests will need."""
        ...

    def facts(self) -> dict[str, Any]:
        """What `/state` says of the run; from any thread."""
        ...

    def snapshot(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Header and arrays of a checkpoint of everything so far."""
        ...

    @property
    def id_column(self) -> str:
        """The key of a row's id."""
        ...

    @property
    def waiting_ids(self) -> int:
        """Rows that wait for what will be told of them by id."""
        ...

    @property
    def given_up(self) -> int:
        """Rows that were forgotten because too many waited."""
        ...

    @property
    def learned(self) -> int:
        """Rows learned since the run began."""
        ...

    @property
    def outputs(self) -> Sequence[Output]:
        """Files that grow, cut back to their length in a checkpoint that is restored."""
        ...

    def row_properties(self) -> dict[str, Any]:
        """The columns of a row, as JSON schema."""
        ...
