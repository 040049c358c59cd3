"""A run of `natkal decide`: contexts, rewards and logged decisions from one stream, decisions out, checkpoints."""

import dataclasses
import functools
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from natkal.decisions.bandit_options import BanditOptions
from natkal.decisions.off_policy import OffPolicySums
from natkal.decisions.table_bandit import TableBandit
from natkal.errors import CheckpointError, Stopped, StreamError
from natkal.reading.source import STDIN, Source
from natkal.runs import checkpoint
from natkal.runs.decision_record import DecisionRecord
from natkal.runs.folder import chain, take_over
from natkal.runs.outputs import Appender, Ends, Output
from natkal.settings.decide import DecisionSettings
from natkal.storage.parts import Field, Stored, StoredPart, StoredParts, by_name, each, text, whole
from natkal.tables.schema import cells
from natkal.tables.schema.rows import Position, Rows

Block = list[tuple[int, dict[str, Any]]]
"""Rows with the lines they began on."""


@dataclasses.dataclass
class DecisionCounts:
    """Rows so far: read = decided + rewarded + logged + rejected + skipped, always."""

    read: int = 0
    decided: int = 0
    rewarded: int = 0
    logged: int = 0
    rejected: int = 0
    skipped: int = 0


class DecisionSession(Ends, StoredParts):
    """One run: the bandit, what became of the rows, and the files that grow."""

    def __init__(self, folder: Path, settings: DecisionSettings):
        self.folder = folder
        self.settings = settings
        self.bandit: TableBandit | None = None
        self.counts = DecisionCounts()
        self.files: list[str] = []
        self.position = Position(0, 0, 1)
        self.ended = False
        """Whether the files were read to their end."""
        self.own, self.log = DecisionRecord(), DecisionRecord()
        """This run's own decisions, and those of the log it learned from."""
        self.paid = 0.0
        """The sum of the rewards of this run's own decisions."""
        self.by_arm: dict[str, list[float]] = {}
        """How often this run chose each arm, how often its reward came, and the sum of those rewards."""
        self.sums = OffPolicySums()
        self.outputs: dict[str, Output] = {}
        self.kept: dict[str, Any] | None = None
        """How long the files are in the checkpoint that the run goes on from."""
        self.show: Callable[[str], None] = lambda text: None

    # -- starting ------------------------------------------------------------------------------------------------------

    def opened(self) -> Iterator[tuple[str, Output]]:
        """The files of decisions and rejects."""
        target = self.settings.decisions
        paths = {"rejects": self.folder / "rejects.jsonl"}
        if target is not None:
            paths["decisions"] = Path(target)
        inputs = {Path(name).resolve() for name in self.files if name != STDIN}
        for name, path in paths.items():
            if path.resolve() in inputs:
                raise StreamError(f"{path}: is the data itself; name another file for the {name}")
        kept = self.kept or {}
        for name, path in paths.items():
            yield name, Appender(path, int(kept.get(name, 0)))

    @classmethod
    def begin(cls, folder: Path, settings: DecisionSettings, source: Source) -> tuple["DecisionSession", list[Rows]]:
        """A new run, with the rows already read: the first of them that is no reward must say what the arms are."""
        session = cls(folder, settings)
        session.files = source.names
        try:
            first = [] if (rows := source.read()) is None else [rows]
            numbered = (entry for rows in first for entry in _numbered(rows))
            telling = next((entry for entry in numbered if session._kind(entry[1]) != "reward"), None)
            if telling is not None:
                session.made([telling])
        except StreamError:
            source.close()
            raise
        return session, first

    @classmethod
    def resume(cls, folder: Path) -> tuple["DecisionSession", str | None]:
        """The run in this folder as its last whole checkpoint has it, and a warning where that is an older one."""
        found = checkpoint.find(folder)
        if found is None:
            raise StreamError(f"{folder}: there is no checkpoint to resume from")
        path, header, arrays, warning = found
        return cls.restored(path, header, arrays, folder), warning

    @classmethod
    def restored(
        cls, path: Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], folder: Path
    ) -> "DecisionSession":
        """The run that a checkpoint holds."""
        try:
            kept = header["decisions"]
            settings = dict(kept["settings"])
            for name in ("arms", "ignore"):
                settings[name] = tuple(map(str, settings[name]))
            session = cls(folder, DecisionSettings(**settings))
            session.restore(Stored(kept))
            if kept["bandit"] is not None:
                session.bandit = TableBandit.from_parts(kept["bandit"], arrays, path)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{path}: not a checkpoint of `natkal decide`") from error
        return session

    def stored_parts(self) -> dict[str, StoredPart]:
        """What survives a restart beside the bandit."""
        kept = functools.partial(Field, self)
        return {
            "files": kept("files", each(text)),
            "position": kept("position", lambda value: Position(*each(whole)(value)), list),
            "ended": kept("ended", lambda value: value is True),
            "counts": kept("counts", lambda value: DecisionCounts(**by_name(whole)(value)), dataclasses.asdict),
            "own": kept("own", DecisionRecord.from_json, DecisionRecord.to_json),
            "log": kept("log", DecisionRecord.from_json, DecisionRecord.to_json),
            "paid": kept("paid", float),
            "by_arm": kept("by_arm", by_name(each(float))),
            "sums": kept("sums", lambda value: OffPolicySums(**value), dataclasses.asdict),
            "outputs": kept("ends", by_name(whole)),
        }

    # -- running -------------------------------------------------------------------------------------------------------

    def run(
        self,
        source: Source,
        first: Sequence[Rows] = (),
        *,
        checkpoint_rows: int | None = None,
        checkpoint_seconds: float | None = 30.0,
        stop: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Decide and learn to the end of the source; False where `stop` asked to end before."""
        source.stop, self.ended = stop, False
        saved_at, saved_rows, finished = time.monotonic(), self.counts.read, True
        try:
            take_over(self)
            for rows in chain(first, source):
                self.take(rows)
                due = checkpoint_seconds is not None and time.monotonic() - saved_at >= checkpoint_seconds
                due = due or (checkpoint_rows is not None and self.counts.read - saved_rows >= checkpoint_rows)
                if due:
                    self.save()
                    saved_at, saved_rows = time.monotonic(), self.counts.read
                if stop():
                    finished = False
                    break
        except Stopped:
            finished = False
        finally:
            source.close()
        self.ended = finished
        self.save()
        for output in self.outputs.values():
            output.close()
        return finished

    def take(self, rows: Rows) -> None:
        """All of a block of rows, in their order; neighbours of one kind go through the bandit together."""
        for reject in rows.rejects:
            self._reject(reject.line, reject.reason)
        self.counts.skipped += rows.blank
        self.counts.read += rows.blank + len(rows.rejects)
        for kind, part in itertools.groupby(_numbered(rows), key=lambda entry: self._kind(entry[1])):
            block = list(part)
            self.counts.read += len(block)
            for piece in self._accepted(kind, block):
                {"context": self._decide, "reward": self._reward, "logged": self._learn}[kind](piece)
        self.position = rows.position
        for output in self.outputs.values():
            output.flush()

    def _kind(self, row: Mapping[str, Any]) -> str:
        """A row with an arm is a logged decision, one with a reward and no arm is a reward; others want a decision."""
        arm = row.get(self.settings.arm)
        if arm in self.settings.arms or not cells.is_missing(arm):  # an arm may be called "none"
            return "logged"
        return "context" if cells.is_missing(row.get(self.settings.reward)) else "reward"

    def _accepted(self, kind: str, block: Block) -> Iterator[Block]:
        """The rows of a block that can be used, together; those that cannot are rejected one by one."""
        good: Block = []
        waiting: set[str] = set()
        for line, row in block:
            try:
                if kind == "reward":
                    self.check_reward(row, waiting)
                    waiting.add(str(row[self.settings.id]))
                elif kind == "logged":
                    self.check_logged(row)
                good.append((line, row))
            except StreamError as error:
                self._reject(line, str(error))
        if kind != "reward" and good:
            # the first row by itself: it decides what the columns are, wherever blocks end
            known = self.bandit is not None and self.bandit.learner is not None
            parts = [good] if known else [good[:1], good[1:]]
            good = [entry for part in parts if part for entry in self._encodable(part)]
        if good:
            yield good

    def _encodable(self, block: Block) -> Block:
        """The rows whose cells can be read; columns that are new are taken on."""
        _, rejects = self.made(block).encode([self.features(row) for _, row in block])
        reasons = {reject.line: reject.reason for reject in rejects}
        for number, (line, _) in enumerate(block, 1):
            if number in reasons:
                self._reject(line, reasons[number])
        return [entry for number, entry in enumerate(block, 1) if number not in reasons]

    def check_reward(self, row: Mapping[str, Any], earlier: set[str]) -> None:
        """Refuse a reward that belongs to no decision, or to one that has its reward, `earlier`."""
        name = row.get(self.settings.id)
        held = self.bandit.learner.held if self.bandit is not None and self.bandit.learner is not None else {}
        if cells.is_missing(name):
            raise StreamError(f"column {self.settings.id!r}: a reward needs the id of its decision")
        if str(name) not in held or str(name) in earlier:
            raise StreamError(f"id {str(name)!r}: no decision with this id waits for a reward")
        assert self.bandit is not None
        self.bandit.value(row.get(self.settings.reward))

    def check_logged(self, row: Mapping[str, Any]) -> None:
        """Refuse a logged decision with a wrong reward or probability."""
        self.made([(0, dict(row))]).value(row.get(self.settings.reward))
        given = row.get(self.settings.probability)
        if not cells.is_missing(given):
            try:
                chance = float(cells.number(given))
            except ValueError as error:
                raise StreamError(f"column {self.settings.probability!r}: {error}") from error
            if not 0 < chance <= 1:
                raise StreamError(f"column {self.settings.probability!r}: must lie in (0, 1], got {chance:g}")

    def _decide(self, block: Block) -> None:
        contexts = self.made(block).encoded([self.features(row) for _, row in block])
        decisions = self.decide(contexts, [self._id(row, line) for line, row in block])
        for (line, _), decision in zip(block, decisions, strict=True):
            text = json.dumps({"line": line, **decision}, ensure_ascii=False)
            if "decisions" in self.outputs:
                self.outputs["decisions"].write(text + "\n")
            else:
                self.show(text)

    def decide(
        self, contexts: np.ndarray, ids: Sequence[str], arms: Sequence[Sequence[str] | None] | None = None
    ) -> list[dict[str, Any]]:
        """Decide for some contexts, and count; `arms` limits the choice of each."""
        assert self.bandit is not None
        decisions = self.bandit.decide_encoded(contexts, ids, arms)
        chosen = [decision["arm"] for decision in decisions]
        for arm in chosen:
            self.by_arm.setdefault(arm, [0, 0, 0.0])[0] += 1
        self.own.decided(chosen, np.array([decision["probability"] for decision in decisions]))
        self.counts.decided += len(decisions)
        return decisions

    def _reward(self, block: Block) -> None:
        self.reward([(str(row[self.settings.id]), row[self.settings.reward]) for _, row in block])

    def reward(self, pairs: Sequence[tuple[str, Any]]) -> None:
        """Learn the rewards of decisions by their ids, all of which wait, and count."""
        assert self.bandit is not None
        assert self.bandit.learner is not None
        known = self.bandit.learner.arms
        held = [self.bandit.learner.held[name] for name, _ in pairs]
        arms = [known[one.arm] for one in held]
        values = np.array([self.bandit.value(reward) for _, reward in pairs])
        for arm, value in zip(arms, values.tolist(), strict=True):
            if value == value:
                own = self.by_arm.setdefault(arm, [0, 0, 0.0])
                own[1] += 1
                own[2] += value
                self.paid += value
        self.bandit.reward_many(pairs)
        self.own.rewarded(arms, np.array([one.probability for one in held]), values)
        self.counts.rewarded += len(pairs)

    def _learn(self, block: Block) -> None:
        self.learn(self.made(block), [row for _, row in block])

    def learn(self, bandit: TableBandit, rows: Sequence[Mapping[str, Any]]) -> None:
        """Learn logged decisions that were checked, value the policy on them, and count."""
        rewards = [row.get(self.settings.reward) for row in rows]
        arms = [str(row[self.settings.arm]) for row in rows]
        valued = bandit.learn([self.features(row) for row in rows], arms, rewards)
        given = [row.get(self.settings.probability) for row in rows]
        chances = np.array([np.nan if cells.is_missing(cell) else float(cells.number(cell)) for cell in given])
        values = np.array([bandit.value(reward) for reward in rewards])
        known = ~np.isnan(values) & ~np.isnan(chances)
        self.log.logged(arms, chances, values, valued.chosen / chances)
        if known.any():
            weight = valued.chosen[known] / chances[known]
            robust = valued.expected_of_policy[known] + weight * (values[known] - valued.expected[known])
            self.sums.add(values[known], weight, robust)
        self.counts.logged += len(rows)

    def made(self, block: Block) -> TableBandit:
        """The bandit; it is made when the first row that needs it comes."""
        if self.bandit is None:
            asked = self.settings
            kind = asked.reward_kind
            found = [row.get(asked.reward) for _, row in block if not cells.is_missing(row.get(asked.reward))]
            if kind == "auto":
                kind = "binary" if found and all(_is_bit(cell) for cell in found) else "number"
            arms = asked.arms or tuple(
                dict.fromkeys(str(row[asked.arm]) for _, row in block if not cells.is_missing(row.get(asked.arm)))
            )
            if not arms:
                raise StreamError("--arms: name the arms to choose from, as in --arms a,b,c")
            options = BanditOptions(kind, asked.policy, asked.policy_value, asked.model, asked.seed)
            self.bandit = TableBandit(arms, options)
        return self.bandit

    def features(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The columns that describe a context."""
        return {name: cell for name, cell in row.items() if name not in self.reserved}

    @functools.cached_property
    def reserved(self) -> frozenset[str]:
        """The columns that do not."""
        asked = self.settings
        return frozenset({asked.id, asked.arm, asked.reward, asked.probability, *asked.ignore})

    def _id(self, row: Mapping[str, Any], line: int) -> str:
        given = row.get(self.settings.id)
        return f"line {line}" if cells.is_missing(given) else str(given)

    def _reject(self, line: int, reason: str) -> None:
        self.counts.rejected += 1
        self.outputs["rejects"].write(json.dumps({"line": line, "reason": reason}, ensure_ascii=False) + "\n")

    # -- results -------------------------------------------------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """What the run decided and earned, and what the log says its policy would earn."""
        found: dict[str, Any] = {
            "rows": dataclasses.asdict(self.counts),
            "mean_reward": self.paid / self.counts.rewarded if self.counts.rewarded else None,
            "arms": {
                arm: {"chosen": int(chosen), "rewarded": int(known), "mean_reward": total / known if known else None}
                for arm, (chosen, known, total) in sorted(self.by_arm.items())
            },
        }
        values = self.own.values()
        if values:
            found["values"] = {
                name: {"value": own.value, "interval": list(own.interval())} for name, own in values.items()
            }
        if self.sums.rows > 1:
            estimates = self.sums.estimates()
            found["off_policy"] = {"rows": self.sums.rows, "effective_rows": estimates.effective}
            for name in ("logged", "inverse_propensity", "self_normalised", "doubly_robust"):
                own = getattr(estimates, name)
                found["off_policy"][name] = {"value": own.value, "interval": list(own.interval())}
        return found

    def save(self) -> Path:
        """A checkpoint of everything up to the last row taken, its output files on disk before it."""
        for output in self.outputs.values():
            output.flush(sync=True)
        return checkpoint.write(self.folder, *self.snapshot())

    def snapshot(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Header and arrays of a checkpoint."""
        made = {
            "settings": dataclasses.asdict(self.settings),
            "bandit": None if self.bandit is None else self.bandit.header(),
        }
        arrays = {} if self.bandit is None else self.bandit.arrays()
        return {"decisions": self.stored().fields | made}, arrays


def _numbered(rows: Rows) -> Block:
    """Rows with their lines."""
    names, columns = list(rows.columns), rows.columns.values()
    table = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    return list(zip(map(int, rows.lines), table, strict=True))


def _is_bit(cell: Any) -> bool:
    try:
        return isinstance(cell, bool) or float(cells.number(cell)) in (0.0, 1.0)
    except ValueError:
        return False
