"""Decisions for rows of a table: dictionaries in, decisions out, rewards by id. The door of commands and servers."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from natkal.drivers.storage import StorageError, check_arrays, read_file, write_file
from natkal.tabular import cells
from natkal.tabular.bandit_learner import BanditLearner, Valued
from natkal.tabular.bandit_options import BanditOptions
from natkal.tabular.errors import CheckpointError, StreamError
from natkal.tabular.features import Encoder
from natkal.tabular.schema import Schema, Target, late_feature
from natkal.tabular.table import Position, Rows

REWARD = "\0reward"
"""The name of the target in the schema, which no column has."""
FORMAT = 1


class TableBandit:
    """Chooses one of some named arms for each row, and learns from the rewards that come back by id.

    The first row decides what its columns are; columns and arms that come later are taken on.

    >>> bandit = TableBandit(["a", "b"], BanditOptions(reward="binary"))
    >>> decision = bandit.decide({"age": 31, "city": "Paris"}, id="visit 1")
    >>> sorted(decision)
    ['arm', 'exact', 'expected', 'id', 'probability']
    >>> 0 < decision["probability"] < 1, decision["exact"]
    (True, True)
    >>> bandit.reward("visit 1", 1)
    """

    def __init__(self, arms: Sequence[str], options: BanditOptions | None = None):
        self.options = BanditOptions() if options is None else options
        self.first_arms = list(arms)
        self.learner: BanditLearner | None = None
        schema = Schema(
            features=(),
            targets=(Target(name=REWARD, task="regression", classes=(), why=""),),
            key=None,
            sequence=None,
            missing="impute",
            ignored={},
            open_columns=True,
        )
        self.encoder = Encoder(schema)
        if not self.first_arms:
            raise StreamError("arms: give at least one")

    # -- decisions -----------------------------------------------------------------------------------------------------

    def decide(
        self, row: Mapping[str, Any], id: str | None = None, arms: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """The decision for one row; with an `id` its reward may come later. `arms` limits the choice to some."""
        return self.decide_many([row], None if id is None else [id], arms)[0]

    def decide_many(
        self, rows: Sequence[Mapping[str, Any]], ids: Sequence[str] | None = None, arms: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Decisions for several rows, all of them with what is known now."""
        contexts = self.encoded(rows)
        assert self.learner is not None
        available = None
        if arms is not None:
            self.learner.add_arms(arms)
            available = np.tile(np.isin(self.learner.arms, list(map(str, arms))), (len(rows), 1))
        told = self.learner.decide(contexts, available)
        names = self.learner.arms
        decisions = []
        for at in range(len(rows)):
            arm = int(told.arms[at])
            if ids is not None:
                self.learner.hold(str(ids[at]), contexts[at], arm)
            decisions.append(
                {
                    "id": None if ids is None else str(ids[at]),
                    "arm": names[arm],
                    "probability": float(told.probabilities[at]),
                    "exact": bool(told.exact[at]),
                    "expected": {name: float(told.expected[at, place]) for place, name in enumerate(names)},
                }
            )
        return decisions

    # -- rewards -------------------------------------------------------------------------------------------------------

    def reward(self, id: str, value: float | None) -> None:
        """What the decision with this id paid; None or NaN says that it will never be known."""
        self.reward_many([(id, value)])

    def reward_many(self, rewards: Iterable[tuple[str, float | None]]) -> None:
        """Several rewards, learned in their order; all ids and values are checked before any is used."""
        pairs = [(str(name), self.value(reward)) for name, reward in rewards]
        if not pairs:
            return
        held = set() if self.learner is None else self.learner.held
        for place, (name, _) in enumerate(pairs):
            if name not in held or name in {earlier for earlier, _ in pairs[:place]}:
                raise StreamError(f"id {name!r}: no decision with this id waits for a reward")
        assert self.learner is not None
        taken = [self.learner.take(name) for name, _ in pairs]
        contexts = np.concatenate([self.learner.with_room(context[None]) for context, _ in taken])
        arms = np.array([arm for _, arm in taken], np.int32)
        self.learner.learn(contexts, arms, np.array([value for _, value in pairs]))

    def learn(self, rows: Sequence[Mapping[str, Any]], arms: Sequence[str], rewards: Sequence[Any]) -> Valued:
        """Decisions that somebody else took, with what they paid; each is valued before it is learned."""
        contexts = self.encoded(rows)
        values = np.array([self.value(reward) for reward in rewards], float)
        assert self.learner is not None
        self.learner.add_arms(arms)
        return self.learner.replay(contexts, np.array([self.learner.arms.index(str(arm)) for arm in arms]), values)

    def value(self, reward: Any) -> float:
        """A reward as a number, NaN where it is missing; one that the kind of reward does not allow is refused."""
        if cells.is_missing(reward):
            return math.nan
        try:
            number = float(cells.boolean(reward)) if isinstance(reward, bool) else float(cells.number(reward))
        except ValueError as error:
            raise StreamError(f"reward {reward!r}: {error}") from error
        if self.options.reward == "binary" and number not in (0.0, 1.0):
            raise StreamError(f"reward {reward!r}: must be 0 or 1; --reward-kind number takes any number")
        if self.options.reward == "count" and (number < 0 or number != math.floor(number)):
            raise StreamError(f"reward {reward!r}: must be a whole number from 0 on; --reward-kind number takes any")
        return number

    # -- rows ----------------------------------------------------------------------------------------------------------

    def encoded(self, rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """The numbers of some rows; columns that are new are taken on."""
        names = dict.fromkeys(str(name) for row in rows for name in row)
        table = Rows(
            file="rows",
            columns={name: [row.get(name) for row in rows] for name in names},
            lines=np.arange(1, len(rows) + 1),
            rejects=[],
            blank=0,
            position=Position(0, 0, 0),
        )
        if self.learner is None:
            for name, column in table.columns.items():
                cell = next((cell for cell in column if not cells.is_missing(cell)), None)
                feature = None if cell is None else late_feature(name, cell, _written_kind(cell))[0]
                if feature is not None:
                    self.encoder.add(dataclasses.replace(feature, late=False))
        else:
            before = self.encoder.width
            for new in self.encoder.new_columns(table):
                self.encoder.add(new.feature)
            if self.encoder.width > before:
                self.learner.add_features(self.encoder.scaled[before:].tolist())
        encoded = self.encoder.encode(table)
        if encoded.rejects:
            raise StreamError(encoded.rejects[0].reason)
        if self.learner is None:
            self.learner = BanditLearner(self.options, self.encoder.scaled.tolist(), self.first_arms)
        return encoded.inputs

    # -- on disk -------------------------------------------------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        """All that is not numbers."""
        return {
            "format": FORMAT,
            "options": dataclasses.asdict(self.options),
            "first_arms": self.first_arms,
            "schema": self.encoder.schema.to_json(),
            "vocabularies": self.encoder.vocabularies,
            "learner": None if self.learner is None else self.learner.header(),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Every number, by name."""
        return {} if self.learner is None else self.learner.arrays()

    @classmethod
    def from_parts(cls, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], path: Path) -> Self:
        """The bandit that wrote them; a `CheckpointError` says what is wrong."""
        try:
            if header["format"] != FORMAT:
                raise CheckpointError(f"{path}: written by another version of natkal")
            made = cls([str(name) for name in header["first_arms"]], BanditOptions(**header["options"]))
            made.encoder = Encoder(Schema.from_json(header["schema"]), header["vocabularies"])
            if header["learner"] is not None:
                made.learner = BanditLearner.from_header(header["learner"])
                check_arrays(path, arrays, made.learner.template())
                made.learner.restore(arrays)
        except (KeyError, TypeError, ValueError, StorageError) as error:
            raise CheckpointError(
                f"{path}: not the checkpoint of a bandit ({type(error).__name__}: {error})"
            ) from error
        return made

    def save(self, path: str | Path) -> Path:
        """Write everything that decides the next row into one file, whole or not at all."""
        write_file(Path(path), self.header(), self.arrays())
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The bandit that `save` wrote."""
        try:
            header, arrays = read_file(Path(path))
        except StorageError as error:
            raise CheckpointError(str(error)) from error
        return cls.from_parts(header, arrays, Path(path))


def _written_kind(cell: Any) -> str:
    """ "number" for a number written as text; "" to find out."""
    if not isinstance(cell, str):
        return ""
    try:
        cells.number(cell)
    except ValueError:
        return ""
    return "number"
