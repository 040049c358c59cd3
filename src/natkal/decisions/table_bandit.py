"""Decisions for rows of a table: dictionaries in, decisions out, rewards by id. The door of commands and servers."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from natkal.decisions.bandit_learner import BanditLearner, Valued
from natkal.decisions.bandit_options import BanditOptions
from natkal.errors import CheckpointError, StreamError
from natkal.storage.file import StorageError, check_arrays, read_file, write_file
from natkal.tables.encode.encoder import Encoder
from natkal.tables.schema import cells
from natkal.tables.schema.infer import Schema, Target, late_feature
from natkal.tables.schema.rows import Position, Reject, Rows

REWARD = "\0reward"
"""The name of the target in the schema, which no column has."""
NO_COLUMNS = Schema(
    features=(),
    targets=(Target(name=REWARD, task="regression", classes=(), why=""),),
    key=None,
    sequence=None,
    missing="impute",
    ignored={},
    open_columns=True,
)
"""The schema before the first row."""
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
        self.encoder = Encoder(NO_COLUMNS)
        if not self.first_arms:
            raise StreamError("arms: give at least one")

    # -- decisions -----------------------------------------------------------------------------------------------------

    def decide(
        self, row: Mapping[str, Any], id: str | None = None, arms: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """The decision for one row; with an `id` its reward may come later. `arms` limits the choice to some."""
        contexts = self.encoded([row])
        assert self.learner is not None
        self.learner.add_arms(arms or ())
        return self.decide_encoded(contexts, None if id is None else [id], None if arms is None else [arms])[0]

    def decide_many(
        self,
        rows: Sequence[Mapping[str, Any]],
        ids: Sequence[str] | None = None,
        arms: Sequence[Sequence[str] | None] | None = None,
    ) -> list[dict[str, Any]]:
        """Decisions for several rows, all of them with what is known now; `arms` limits the choice of each row."""
        return self.decide_encoded(self.encoded(rows), ids, arms)

    def decide_encoded(
        self,
        contexts: np.ndarray,
        ids: Sequence[str] | None = None,
        arms: Sequence[Sequence[str] | None] | None = None,
    ) -> list[dict[str, Any]]:
        """The same for rows that were turned into numbers already."""
        assert self.learner is not None
        told = self.learner.decide(contexts, None if arms is None else self.available(arms))
        names = self.learner.arms
        decisions = []
        columns = (told.arms, told.probabilities, told.exact, told.expected[:, : len(names)])
        for at, (arm, chance, exact, expected) in enumerate(zip(*(part.tolist() for part in columns), strict=True)):
            if ids is not None:
                self.learner.hold(str(ids[at]), contexts[at], arm, chance)
            decisions.append(
                {
                    "id": None if ids is None else str(ids[at]),
                    "arm": names[arm],
                    "probability": chance,
                    "exact": exact,
                    "expected": dict(zip(names, expected, strict=True)),
                }
            )
        return decisions

    def available(self, arms: Sequence[Sequence[str] | None]) -> np.ndarray:
        """Which arms each row may have, (n, arms); one that is not known is refused."""
        known = self.first_arms if self.learner is None else self.learner.arms
        for names in arms:
            for name in names or ():
                self.check_arm(name)
        return np.array([[names is None or name in set(map(str, names)) for name in known] for names in arms], bool)

    def check_arm(self, name: Any) -> None:
        """Refuse a name that is none of the arms."""
        known = self.first_arms if self.learner is None else self.learner.arms
        if str(name) not in known:
            listed = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
            raise StreamError(f"arm {str(name)!r:.60} is unknown; there are {listed}")

    # -- rewards -------------------------------------------------------------------------------------------------------

    def reward(self, id: str, value: float | None) -> None:
        """What the decision with this id paid; None or NaN says that it will never be known."""
        self.reward_many([(id, value)])

    def reward_many(self, rewards: Iterable[tuple[str, float | None]]) -> None:
        """Several rewards, learned in their order; all ids and values are checked before any is used."""
        pairs = [(str(name), self.value(reward)) for name, reward in rewards]
        if not pairs:
            return
        waiting = set() if self.learner is None else set(self.learner.held)
        for name, _ in pairs:
            if name not in waiting:
                raise StreamError(f"id {name!r}: no decision with this id waits for a reward")
            waiting.remove(name)
        assert self.learner is not None
        taken = [self.learner.take(name) for name, _ in pairs]
        contexts = np.concatenate([self.learner.with_room(one.context[None]) for one in taken])
        arms = np.array([one.arm for one in taken], np.int32)
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
        """The numbers of some rows, of which the first that cannot be used is refused; new columns are taken on."""
        numbers, rejects = self.encode(rows)
        if rejects:
            raise StreamError(rejects[0].reason)
        return numbers

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, list[Reject]]:
        """The numbers of some rows, or which of them cannot be used; columns that are new are taken on."""
        if self.learner is not None and all(len(row) == len(self.encoder.schema.features) for row in rows):
            plain = self.encoder.encode_plain(rows, targets=False)
            if plain is not None:
                return plain.inputs, []
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
            self.encoder = Encoder(NO_COLUMNS)
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
            return encoded.inputs, encoded.rejects
        self.encoder.accept(encoded.additions)
        if self.learner is None:
            self.learner = BanditLearner(self.options, self.encoder.scaled.tolist(), self.first_arms)
        return encoded.inputs, encoded.rejects

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
