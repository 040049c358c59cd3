"""A table that changes while a door learns it, and what must hold whatever happens: a state machine for Hypothesis.

One example: a task, a learner, up to two more options and a door are drawn; then rows come, classes and columns appear,
cells go wrong, labels are late, the run is killed, saved, asked. At the end all rows that were given go through one
uninterrupted run, which must have predicted the same.

A new option is one line of `OPTIONS`, a new learner one of `LEARNERS`, a new event one rule.
"""

import json
import math
import os
import shutil
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.changing.doors import DOORS, SAMPLE, MemoryDoor, Refused, Row, Told

TASKS: dict[str, dict[str, Any]] = {
    "number": {"task": "regression"},
    "positive": {"task": "positive"},
    "count": {"task": "count"},
    "binary": {},
    "multiclass": {},
    "two targets": {},
}
LEARNERS: dict[str, dict[str, Any]] = {
    "linear": {"learner": "single", "model": "linear"},
    "network": {"learner": "single", "model": "mlp:4"},
    "recurrent": {"learner": "single", "model": "gru:2"},
    "fast": {"budget": "fast"},
    "microseconds": {"budget": 50},
    "memory": {"memory": "300kB"},
    "linears": {"model": "linear"},
    "mixture": {},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "past": {"past": "1,2"},
    "no past": {"past": "none"},
    "key": {"key": "k"},
    "pool": {"key": "k", "pool": True},
    "sequence": {"sequence": "k"},
    "id": {"id": "id"},
    "delay": {"label_delay": 3},
    "horizon": {"horizon": 2},
    "reject": {"missing": "reject"},
    "features": {"features": "-b"},
    "seed": {"seed": 7},
    "level": {"level": 0.5},
}
QUICK = ("linear", "linear", "linear", "network", "recurrent", "fast")
"""The learners of a bounded number of examples: what compiles in a second."""
COUNTS = (1, 2, 7, 33, 80)
CELLS: dict[str, Any] = {
    "nothing": None,
    "text": "abc",
    "empty": "",
    "huge": 1e300,
    "too large": 10**400,
    "tiny": 5e-324,
    "list": [1],
    "flag": True,
}
WORDS = ("red", "green", "blue", "grey")
COUNT = os.environ.get("NATKAL_COUNT")
"""A file in which each example is written down, if failures are to be counted instead of raised."""


def examples(default: int) -> int:
    """How many examples were asked for."""
    return int(os.environ.get("NATKAL_EXAMPLES", default))


class Changing(RuleBasedStateMachine):
    """One door, one table; `history` is every row the door was given."""

    learners = tuple(LEARNERS)
    last: "Changing"

    def __init__(self) -> None:
        super().__init__()
        Changing.last = self
        self.folder = Path(tempfile.mkdtemp(prefix="changing-"))
        self.door: Any = None
        self.options: dict[str, Any] = {}
        self.history: list[Row] = []
        self.said = ""
        self.checked = self.ids = 0
        self.first_shown: list[Any] = []
        self.shown: set[str] = set()
        self.parts: list[list[Row]] = []
        self.steps: list[str] = []
        self.failed: dict[str, Any] = {}
        self.dead = self.odd = False

    # -- what happens --------------------------------------------------------------------------------------------------

    @initialize(
        door=st.sampled_from(["file", "file", "memory", "memory", "server", "scikit", "river"]),
        task=st.sampled_from(list(TASKS)),
        data=st.data(),
        options=st.lists(st.sampled_from(list(OPTIONS)), max_size=2, unique=True),
    )
    def begin(self, door: str, task: str, data: Any, options: list[str]) -> None:
        learner = data.draw(st.sampled_from(self.learners))
        self.said = f"{door}, {task}, {learner}, {options}"
        self.do(self._begin, door, task, learner, options)

    @rule(count=st.sampled_from(COUNTS), seed=st.integers(0, 99))
    def rows_arrive(self, count: int, seed: int) -> None:
        self.do(self._learn, count, seed)

    @precondition(lambda self: self.alive and self.classes)
    @rule(seed=st.integers(0, 99))
    def a_class_appears(self, seed: int) -> None:
        self.classes.append(f"c{len(self.classes)}")
        self.do(self._learn, 3, seed, self.classes[-1])

    @precondition(lambda self: self.alive and self.door.grows and len(self.columns) < 6)
    @rule(kind=st.sampled_from(["number", "word", "flag"]), seed=st.integers(0, 99))
    def a_column_appears(self, kind: str, seed: int) -> None:
        self.comparable &= not self.door.numbers_only
        self.columns[f"new{len(self.columns)}"] = "number" if self.door.numbers_only else kind
        self.do(self._learn, 7, seed)

    @precondition(lambda self: self.alive)
    @rule(column=st.sampled_from(["a", "b", "c"]))
    def a_column_vanishes_or_comes_back(self, column: str) -> None:
        self.vanished ^= {column} & self.columns.keys()

    @precondition(lambda self: self.alive and not self.door.numbers_only)
    @rule(column=st.sampled_from(["a", "c"]), kind=st.sampled_from(["number", "word", "flag"]))
    def a_column_changes_its_kind(self, column: str, kind: str) -> None:
        self.columns[column] = kind
        self.odd |= kind != {"a": "number", "c": "word"}[column]

    @precondition(lambda self: self.alive and not self.door.numbers_only)
    @rule(cell=st.sampled_from(list(CELLS)), column=st.sampled_from(["a", "c", "y"]), seed=st.integers(0, 99))
    def a_cell_is_odd(self, cell: str, column: str, seed: int) -> None:
        rows = self._rows(3, seed)
        rows[1][column] = CELLS[cell]
        if column == "y" and (self.classes or CELLS[cell] is None) and not self.door.labels_may_lack:
            return
        if column == "y" and self.classes and isinstance(CELLS[cell], str) and CELLS[cell]:
            self.classes.append(CELLS[cell])
        self.do(self._give, rows)

    @precondition(lambda self: self.alive and "id" in self.options)
    @rule(count=st.sampled_from([1, 2, 7]), seed=st.integers(0, 99), never=st.booleans())
    def labels_come_late(self, count: int, seed: int, never: bool) -> None:
        rows = self._rows(count, seed)
        self.do(self._give, [{name: row[name] for name in row if name not in self.targets} for row in rows])
        self.do(self._learn, 2, seed)
        later = rows[::-1][never:]
        if later:
            self.do(self._give, [{name: row[name] for name in ("id", *self.targets)} for row in later])

    @precondition(lambda self: self.alive)
    @rule()
    def kill_and_resume(self) -> None:
        self.do(self.door.kill)

    @precondition(lambda self: self.alive)
    @rule()
    def save_and_load(self) -> None:
        self.do(self.door.save_and_load)

    @precondition(lambda self: self.alive)
    @rule(count=st.sampled_from([1, 3, 40]), seed=st.integers(0, 99))
    def predict(self, count: int, seed: int) -> None:
        self.do(self._predict, count, seed)

    @precondition(lambda self: self.alive)
    @rule(horizon=st.sampled_from([1, 3]))
    def forecast(self, horizon: int) -> None:
        self.do(lambda: check(self.door.forecast(horizon)), refusals=True)

    @precondition(lambda self: self.alive)
    @rule()
    def ask_what_is_refused(self) -> None:
        self.do(self._refused)

    def teardown(self) -> None:
        if self.alive:
            self.do(self._same_as_without_interruption)
        if self.door is not None and not self.dead:
            self.do(self.door.close)
        shutil.rmtree(self.folder, ignore_errors=True)
        if COUNT is not None:
            with open(COUNT, "a") as file:
                file.write(json.dumps({"example": self.said, "options": self.options, **self.failed}) + "\n")

    # -- how -----------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether there is a run that went well so far."""
        return bool(self.history) and not self.dead

    def do(self, what: Any, *arguments: Any, refusals: bool = False) -> None:
        """Do it, and check what always holds. What is raised ends the example, but for a refusal where one may come."""
        if self.dead:
            return
        try:
            self.steps.append(f"{getattr(what, '__name__', what)}{arguments}")
            what(*arguments)
            if self.history:
                self._accounts()
        except Exception as error:
            if refusals and isinstance(error, Refused):
                return
            self.dead = True
            if COUNT is None:
                raise
            self.failed = {"rows": len(self.history), "steps": self.steps, **signature(error)}

    def _begin(self, door: str, task: str, learner: str, options: list[str]) -> None:
        self.targets = ["y", "z"] if task == "two targets" else ["y"]
        self.task, kind = task, DOORS[door]
        self.options = TASKS[task] | LEARNERS[learner]
        for option in options:
            self.options |= OPTIONS[option]
        if kind.numbers_only:
            self.options |= {"past": "none", "task": self.options.get("task")}
            if task == "two targets" or (door == "river" and task in ("positive", "count")) or task == "positive":
                task = self.task = "binary"
                self.targets, self.options["task"] = ["y"], None
            self.options = {n: v for n, v in self.options.items() if v is not None and n in ESTIMATOR_OPTIONS}
        known = 3 if task == "multiclass" else 2
        self.classes = [f"c{n}" for n in range(known)] if task in ("binary", "multiclass", "two targets") else []
        self.columns = {"a": "number", "b": "number"} | ({} if kind.numbers_only else {"c": "word"})
        self.vanished: set[str] = set()
        self.comparable = not (door == "river" and task == "multiclass")
        self.door = kind(self.folder / "door", self.targets, self.options) if self._made("door") else None
        rows = self._rows(60, 0)
        for row, name in zip(rows, self.classes, strict=False):
            row["y"] = name
        try:
            self._give(rows)
        except Refused:  # these options do not go together
            self.history = []
            self.dead = True

    def _made(self, name: str) -> bool:
        (self.folder / name).mkdir()
        return True

    def _rows(self, count: int, seed: int) -> list[Row]:
        """Rows as the table is now; the target depends on columns whether they are shown or not."""
        rng = np.random.default_rng([seed, len(self.history)])
        rows = []
        for _ in range(count):
            values = rng.normal(size=3).round(3).tolist()
            word, key, noise = rng.integers(4), rng.integers(3), rng.normal()
            shown = {"a": values[0], "b": values[1]}
            score = 2 * values[0] - values[1] + (word == 1) + 0.5 * noise
            row: Row = {}
            for name, kind in self.columns.items():
                cell = {"number": shown.get(name, values[2]), "word": WORDS[word], "flag": bool(word % 2)}[kind]
                if name not in self.vanished:
                    row[name] = cell
                elif not self.door.grows:
                    row[name] = None
            if {"key", "sequence"} & self.options.keys():
                row["k"] = f"key {key}" if "key" in self.options else f"part {len(self.history) // 50}"
            if "id" in self.options:
                self.ids += 1
                row["id"] = f"row {self.ids}"
            rows.append(row | self._targets(score, rng))
        return rows

    def _targets(self, score: float, rng: np.random.Generator) -> Row:
        if self.classes:
            scores = score * np.cos(np.arange(len(self.classes))) + rng.gumbel(size=len(self.classes))
            row = {"y": self.classes[int(scores.argmax())]}
            return row | ({"z": round(score, 3)} if self.task == "two targets" else {})
        if self.task == "count":
            return {"y": int(rng.poisson(math.exp(min(score / 2, 3))))}
        return {"y": round(math.exp(score / 2), 4) if self.task == "positive" else round(3 * score + 10, 3)}

    def _learn(self, count: int, seed: int, label: str | None = None) -> None:
        rows = self._rows(count, seed)
        if label is not None:
            rows[1]["y"] = label
        self._give(rows)

    def _give(self, rows: list[Row]) -> None:
        self.first_shown += [self.classes and not self.shown >= {str(row.get("y"))} for row in rows]
        self.shown |= {str(row.get("y")) for row in rows}
        self.history += rows
        self.parts.append(rows)
        self.door.learn(rows)
        told = self.door.told
        check(told[self.checked :])
        self.checked = len(told)

    def _accounts(self) -> None:
        counts = self.door.counts
        assert counts["read"] == len(self.history), (counts, len(self.history))
        assert counts["read"] == counts["learned"] + counts["rejected"] + counts["skipped"], counts

    def _predict(self, count: int, seed: int) -> None:
        rows = [
            {name: row[name] for name in row if name not in (*self.targets, "id")} for row in self._rows(count, seed)
        ]
        try:
            told = self.door.predict(rows)
        except Refused:
            odd = any(
                self.columns[name] != kind for name, kind in (("a", "number"), ("c", "word")) if name in self.columns
            )
            if odd and not self.door.numbers_only:
                return
            raise
        check(told)
        assert same(told, self.door.predict(rows), 0.0), "asked twice, it is another answer"

    def _refused(self) -> None:
        try:
            self.door.refused()
        except Refused:
            return
        raise AssertionError("this was not refused")

    def _same_as_without_interruption(self) -> None:
        """All rows in one call of `nk.learn`: the same predictions, bit for bit where the door is of the same make.

        Labels that are delayed are learned where the rows end, so there the calls are those of the door. A row that
        shows a new class is predicted by estimators before they know the class.
        """
        if not self.comparable:
            return
        whole = MemoryDoor(self.folder / "whole", self.targets, self.options) if self._made("whole") else None
        assert whole is not None
        for part in self.parts if "label_delay" in self.options else [self.history]:
            whole.learn(part)
        mine, its = self.door.told, whole.told
        assert len(mine) == len(its), f"{len(mine)} rows were predicted, {len(its)} without interruption"
        for number, (one, other) in enumerate(zip(mine, its, strict=True)):
            if self.door.numbers_only and (self.first_shown[number] or number < len(self.classes)):
                continue
            assert same([one], [other], self.door.apart), f"prediction {number}: {one} and, in one go, {other}"
        if not self.door.numbers_only:
            assert self.door.counts == whole.counts


ESTIMATOR_OPTIONS = ("task", "learner", "model", "budget", "memory", "past")


def check(told: Told) -> None:
    """Numbers are finite, limits in order; the probabilities of a target sum to 1."""
    for row in told:
        sums: dict[str, float] = {}
        for name, value in row.items():
            assert value is not None, row
            assert isinstance(value, str) or math.isfinite(value), row
            if "p(" in name:
                assert -1e-12 <= value <= 1 + 1e-12, row
                prefix = name.partition("p(")[0]
                sums[prefix] = sums.get(prefix, 0.0) + value
            if name.endswith("low"):
                assert value <= row[name[:-3] + "high"], row
        assert all(abs(total - 1) < 1e-9 for total in sums.values()), row


def same(mine: Told, its: Told, apart: float) -> bool:
    """Whether two lists of predictions agree in all that both tell (a file tells later classes in one sum)."""

    def agree(left: Any, right: Any) -> bool:
        if isinstance(left, str) or isinstance(right, str):
            return left == right or apart > 0  # the best of two classes that are equally probable
        return left == right or math.isclose(left, right, rel_tol=apart, abs_tol=apart / 1000)

    pairs = zip(mine, its, strict=True) if len(mine) == len(its) else [({"": 0}, {"": 1})]
    return all(agree(one[name], other[name]) for one, other in pairs for name in one.keys() & other.keys())


def signature(error: BaseException) -> dict[str, str]:
    """What tells one defect from another: the kind of error, where it was raised inside natkal, its first words."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "/natkal/" in frame.filename]
    places = [f"{frame.filename.rpartition('/natkal/')[2]}:{frame.name}" for frame in own[-3:]]
    return {"error": type(error).__name__, "place": " < ".join(reversed(places)), "words": str(error)[:300]}


def reproduction(machine: Changing) -> str:
    """The rows and options of the last example, left on disk, and how to run them."""
    path = Path(tempfile.gettempdir()) / "changing-table.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in machine.history))
    options = {"target": machine.targets, **machine.options, "sample": SAMPLE} if machine.history else {}
    return f"{machine.said}: {len(machine.history)} rows in {path}; nk.learn({str(path)!r}, **{options!r})"
