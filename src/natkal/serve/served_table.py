"""A run of `natkal learn` behind the writer: predictions from a view, learning, and what the figures say."""

import dataclasses
import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from natkal.runs.answers import prediction_columns
from natkal.runs.learning import Block
from natkal.runs.metrics import record
from natkal.runs.outputs import Output
from natkal.runs.session import Session
from natkal.runs.snapshot import snapshot
from natkal.serve.figures import Alarms, Series, session_facts
from natkal.serve.requests import LEARN, PREDICT, PREDICT_LEARN, Request
from natkal.serve.served import Log
from natkal.serve.work import Work
from natkal.settings.serve import Limits
from natkal.tables.engine.batch import Predictions
from natkal.tables.engine.live_table import Reader
from natkal.tables.schema.infer import Schema, Target

SCORE_ROWS = 512
"""Rows are counted into the metrics in blocks of this size: adding to a window copies it."""
TYPES = {"number": ["number", "null"], "boolean": ["boolean", "null"]}


@dataclasses.dataclass(frozen=True)
class View:
    """What readers use: a whole state, and the targets with the classes known in it."""

    reader: Reader
    targets: tuple[Target, ...]


class ServedTable:
    """Learns what is posted; `predict` answers from the last whole state, from any thread."""

    kinds = frozenset({PREDICT, LEARN, PREDICT_LEARN})
    refusal = "this run is not a bandit: /decide and /reward need one"

    def __init__(self, session: Session, limits: Limits):
        self.session = session
        self.work = Work(session, limits)
        self._figures = threading.Lock()
        self._unscored: list[Block] = []
        self._unscored_rows = 0
        self._members: np.ndarray | None = None
        self.series, self.alarms = Series(session), Alarms()
        self._publish()

    # -- readers -------------------------------------------------------------------------------------------------------

    def predict(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Predictions from the last whole state, as columns; nothing is kept."""
        columns, view = self.work.columns, self.view
        encoded = columns.encode(rows)
        resets = None
        if self.session.schema.sequence is not None:
            keys = encoded.keys or [""] * len(rows)
            last = self.session.sequences
            resets = np.array([last.get(k, s) != s for k, s in zip(keys, encoded.sequences, strict=True)])
        told = view.reader.predict(encoded.inputs, encoded.keys, resets)
        return prediction_columns(view.targets, told.targets, self.session.settings.level)

    def facts(self) -> dict[str, Any]:
        """Scores, calibration, weights, the last rows, alarms."""
        with self._figures:
            self._score(all_of_them=True)
            return session_facts(self.session, self.series, self.alarms, self._members)

    @property
    def schema(self) -> Schema:
        """The columns of the run."""
        return self.session.schema

    @property
    def id_column(self) -> str:
        """The key of a row's id."""
        return self.work.columns.id

    @property
    def waiting_ids(self) -> int:
        """Rows that wait for their label."""
        return len(self.session.held)

    @property
    def given_up(self) -> int:
        """Rows whose label did not come before too many others waited."""
        return self.session.held.given_up

    @property
    def learned(self) -> int:
        """Rows learned since the run began."""
        return self.session.counts.learned

    @property
    def outputs(self) -> Sequence[Output]:
        """The files of the run."""
        return list(self.session.outputs.values())

    def row_properties(self) -> dict[str, Any]:
        """Features and targets."""
        schema = self.session.schema
        return {
            feature.name: {"type": TYPES.get(feature.kind, ["string", "number", "null"])} for feature in schema.features
        } | {
            target.name: {"enum": list(target.classes[:100])} if target.classes else {"type": "number"}
            for target in schema.targets
        }

    # -- the writer ----------------------------------------------------------------------------------------------------

    def run(self, requests: list[Request], log: Log) -> None:
        """Learn the requests, publish the state, count what was told."""
        blocks = self.work.run(requests, log)
        self._publish()
        with self._figures:
            self._unscored += blocks
            self._unscored_rows += sum(len(block.encoded.inputs) for block in blocks)
            self._score()

    def warm_up(self) -> None:
        """Compile what requests will need."""
        self.work.table.warm_up()
        with self._figures:
            session_facts(self.session, self.series, self.alarms, None)
        self._publish()

    def snapshot(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """All rows counted, the learner's state stored."""
        with self._figures:
            self._score(all_of_them=True)
            self.work.table.store()
            for output in self.outputs:
                output.flush()
            return snapshot(self.session)

    def _publish(self) -> None:
        self.view = View(self.work.table.reader(), self.session.schema.targets)

    def _score(self, *, all_of_them: bool = False) -> None:
        """Count what blocks told into the metrics, many rows at a time; under the lock."""
        if not self._unscored_rows or (self._unscored_rows < SCORE_ROWS and not all_of_them):
            return
        for blocks in _alike(self._unscored):
            told: Predictions = jax.tree.map(lambda *leaves: np.concatenate(leaves), *[block.told for block in blocks])
            inputs = np.concatenate([block.encoded.inputs for block in blocks])
            observed = np.concatenate([block.encoded.targets for block in blocks])
            targets = blocks[-1].targets
            self.session.score(inputs, observed, targets, told)
            self.alarms.add(record(targets[0], told.targets[0], observed[:, 0]), self.session.metrics.row)
            self._members = np.append(told.weights[-1], told.effective_rows[-1])
        self._unscored.clear()
        self._unscored_rows = 0


def _alike(blocks: list[Block]) -> Iterator[list[Block]]:
    """Blocks in runs whose arrays have the same shapes: classes may have been added in between."""

    def kind(block: Block) -> Any:
        return block.targets, [leaf.shape[1:] for leaf in jax.tree.leaves(block.told)]

    for _, run in itertools.groupby(blocks, kind):
        yield list(run)
