"""Each door to the same learner, by what is public: rows in, what was predicted of each out, and its own refusals.

A door takes rows as dictionaries. `told` has one entry for each row that was learned: the probability of each class, or
the guess and its limits, by target. `apart` is how far its numbers may be from those of `nk.learn`: programs for blocks
of another size round in another order. `Refused` is an answer with a sentence; any other exception is a defect.
"""

import json
import math
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

import natkal as nk
from natkal.cli import app
from natkal.cli.serve import fresh_run
from natkal.errors import StreamError
from natkal.serve.service import Service
from natkal.settings.serve import Limits
from natkal.settings.settings import Settings
from tests.app.serve.support import crash, make_client, make_service

Row = dict[str, Any]
Told = list[dict[str, Any]]
SAMPLE = 40
"""Rows from which the columns are inferred: the first that a door is given."""


class Refused(Exception):
    """natkal said no, with a sentence."""


class FileDoor:
    """`natkal learn`, a file that grows and `--resume`."""

    apart, grows, numbers_only, labels_may_lack = 0.0, True, False, True

    def __init__(self, folder: Path, targets: list[str], options: dict[str, Any]):
        self.data, self.run, self.before = folder / "d.jsonl", folder / "run", folder / "before"
        self.predictions = folder / "p.jsonl"
        self.data.write_text("")
        self.command = ["learn", str(self.data), *as_flags({"target": targets, **options, "sample": SAMPLE})]
        self.command += ["--predictions", str(self.predictions), "--run", str(self.run)]
        self.counts = dict.fromkeys(("read", "learned", "rejected", "skipped"), 0)

    def learn(self, rows: list[Row]) -> None:
        with self.data.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        if self.run.exists():
            shutil.copytree(self.run, self.before, dirs_exist_ok=True)
        self._go_on()

    def _go_on(self) -> None:
        resume = ["--resume"] if self.run.exists() else []
        self.counts = json.loads(natkal(*self.command, *resume, "--no-report", "--json"))["rows"]

    @property
    def told(self) -> Told:
        return [read_told(json.loads(line)) for line in self.predictions.read_text().splitlines()]

    def predict(self, rows: list[Row]) -> Told:
        asked, out = self.data.with_name("asked.jsonl"), self.data.with_name("answer.jsonl")
        asked.write_text("".join(json.dumps(row) + "\n" for row in rows))
        natkal("predict", str(self.run), str(asked), "--out", str(out), "--missing-columns", "impute")
        return [read_told(json.loads(line)) for line in out.read_text().splitlines()]

    def forecast(self, horizon: int) -> Told:
        answer = natkal("forecast", str(self.run), "--horizon", str(horizon), "--no-report", "--json")
        return [read_told(entry) for entry in json.loads(answer)["forecast"]]

    def kill(self) -> None:
        """The checkpoint is the one before the last rows, the other files are as far as they came."""
        if not self.before.exists():
            return
        told, counts = self.predictions.read_bytes(), self.counts
        for file in self.before.glob("checkpoint*"):
            shutil.copy(file, self.run / file.name)
        self._go_on()
        assert (self.predictions.read_bytes(), self.counts) == (told, counts), "killed and resumed, it is another run"

    def save_and_load(self) -> None:
        """The run moves to another folder."""
        nk.load_run(self.run).save(self.run.with_name("saved"), overwrite=True)
        shutil.rmtree(self.run)
        shutil.copytree(self.run.with_name("saved"), self.run)

    def refused(self) -> None:
        natkal("learn", "--resume", "--run", str(self.run), "--level", "0.123", "--json")

    def close(self) -> None:
        pass


class MemoryDoor(FileDoor):
    """`nk.learn` on rows in memory, then `Run.learn`."""

    def __init__(self, folder: Path, targets: list[str], options: dict[str, Any]):
        self.folder, self.saves = folder, 0
        self.predictions = folder / "p.jsonl"
        self.options = {"target": targets, **options, "sample": SAMPLE, "predictions": self.predictions}
        self.learned: nk.Run | None = None

    def learn(self, rows: list[Row]) -> None:
        with own_errors():
            if self.learned is None:
                self.learned = nk.learn(rows, **self.options, run=self.folder / "run", progress=False)
            else:
                self.learned.learn(rows, progress=False)

    @property
    def counts(self) -> dict[str, int]:
        return self._run.rows

    @property
    def _run(self) -> nk.Run:
        assert self.learned is not None
        return self.learned

    def predict(self, rows: list[Row]) -> Told:
        with own_errors():
            return [read_told(row) for row in self._run.predict(rows, missing_columns="impute")]

    def forecast(self, horizon: int) -> Told:
        with own_errors():
            made = self._run.forecast(horizon)  # of several targets: columns that are another's are None
        return [read_told({name: value for name, value in row.items() if value is not None}) for row in made]

    def kill(self) -> None:
        """What the last rows left on disk."""
        self.learned = nk.load_run(self.folder / "run")

    def save_and_load(self) -> None:
        self.saves += 1
        self.learned = nk.load_run(self._run.save(self.folder / f"saved {self.saves}"))

    def refused(self) -> None:
        with own_errors():
            self._run.predict([{"a": 1.0}], level=2)


class ServerDoor:
    """A run behind HTTP: every row is posted."""

    apart, grows, numbers_only, labels_may_lack = 1e-9, False, False, False

    def __init__(self, folder: Path, targets: list[str], options: dict[str, Any]):
        self.folder, self.targets = folder, targets
        options = options | {"budget": str(options.get("budget", "auto")), "features": (options.get("features"),)}
        options["features"] = tuple(filter(None, options["features"]))
        self.settings = Settings(targets=tuple(targets), **options, sample=SAMPLE, predictions=str(folder / "p.jsonl"))
        self.service: Any = None
        self.told: Told = []
        self.counts = dict.fromkeys(("read", "learned", "rejected", "skipped"), 0)

    def learn(self, rows: list[Row]) -> None:
        """All in one request; one by one where that is refused."""
        if self.service is None:
            self.schema = self.folder / "first.jsonl"
            self.schema.write_text("".join(json.dumps(row) + "\n" for row in rows[:SAMPLE]))
            self._start()
        try:
            self._learn(rows)
        except Refused:
            for row in rows:
                try:
                    self._learn([row])
                except Refused:
                    self.counts["read"] += 1
                    self.counts["rejected"] += 1

    def _learn(self, rows: list[Row]) -> None:
        answer = self._post("/predict_learn", rows)["predictions"]
        self.told += [self._read(one) for one in answer]
        self.counts["read"] += len(rows)
        self.counts["learned"] += len(rows)
        assert self.client.get("/state").json()["rows"]["learned"] == self.counts["learned"]

    def _read(self, answer: dict[str, Any]) -> dict[str, Any]:
        return read_told(answer)

    def _start(self) -> None:
        with own_errors():
            self.service = make_service(self.folder, self.settings, self.schema, limits=Limits(seconds=600))
        self.client = make_client(self.service)

    def _post(self, path: str, rows: Any) -> Any:
        answer = self.client.post(path, json=rows)
        assert answer.status_code < 500, answer.text
        if answer.status_code != 200:
            raise Refused(answer.json()["error"])
        return answer.json()

    def predict(self, rows: list[Row]) -> Told:
        return [self._read(one) for one in self._post("/predict", rows)["predictions"]]

    def forecast(self, horizon: int) -> Told:
        raise Refused("a server has no forecasts")

    def kill(self) -> None:
        crash(self.service)
        self._start()

    def save_and_load(self) -> None:
        self.service.close()
        self._start()

    def refused(self) -> None:
        self._post("/predict_learn", [{"never seen": 1}])

    def close(self) -> None:
        if self.service is not None:
            self.service.close()


class EstimatorDoor:
    """What the two estimator libraries share: numbers alone, copies by pickle, predictions within 1e-6."""

    apart, numbers_only, labels_may_lack = 1e-6, True, False
    model: Any

    def __init__(self, folder: Path, targets: list[str], options: dict[str, Any]):
        (self.target,) = targets
        task = options.get("task")
        keep = {name: value for name, value in options.items() if name in ("learner", "model", "budget", "memory")}
        self.model = self.estimator(task)(**keep, past=options["past"])
        self.classes = task not in ("regression", "positive", "count")
        self.told: Told = []
        self.count = 0

    @property
    def counts(self) -> dict[str, int]:
        return {"read": self.count, "learned": self.count, "rejected": 0, "skipped": 0}

    def forecast(self, horizon: int) -> Told:
        raise Refused("an estimator has no forecasts")

    def kill(self) -> None:
        self.model = pickle.loads(pickle.dumps(self.model))

    save_and_load = kill

    def close(self) -> None:
        pass


class ScikitDoor(EstimatorDoor):
    """`partial_fit`, block by block."""

    grows = False

    @staticmethod
    def estimator(task: str | None) -> Any:
        from natkal import sklearn as door

        kinds = {"regression": door.KalmanRegressor, "count": door.KalmanCountRegressor}
        return kinds.get(str(task), door.KalmanClassifier)

    def learn(self, rows: list[Row]) -> None:
        inputs, labels = self._inputs(rows), np.array([row[self.target] for row in rows])
        first = {"classes": sorted(set(labels.tolist()))} if self.classes and not self.told else {}
        with own_errors():
            if not self.told:
                self.model.partial_fit(inputs[:1], labels[:1], **first)
                self.told.append({})
                inputs, labels = inputs[1:], labels[1:]
            for at in range(len(inputs)):
                self.told += self._predict(inputs[at : at + 1])
                self.model.partial_fit(inputs[at : at + 1], labels[at : at + 1])
        self.count += len(rows)

    def predict(self, rows: list[Row]) -> Told:
        with own_errors():
            return self._predict(self._inputs(rows))

    def _predict(self, inputs: np.ndarray) -> Told:
        if not self.classes:
            return [{"predicted": float(value)} for value in self.model.predict(inputs)]
        names = [str(name) for name in self.model.classes_]
        return [
            dict(zip(map("p({})".format, names), p, strict=True)) for p in self.model.predict_proba(inputs).tolist()
        ]

    def _inputs(self, rows: list[Row]) -> np.ndarray:
        self.columns = getattr(self, "columns", None) or [name for name in rows[0] if name != self.target]
        return np.array([[number(row.get(name)) for name in self.columns] for row in rows])

    def refused(self) -> None:
        with own_errors():
            self.model.partial_fit([[1.0]], [0])


class RiverDoor(EstimatorDoor):
    """`predict_one`, then `learn_one`."""

    grows = True

    @staticmethod
    def estimator(task: str | None) -> Any:
        from natkal import river as door

        return door.KalmanRegressor if task == "regression" else door.KalmanClassifier

    def learn(self, rows: list[Row]) -> None:
        with own_errors():
            for row in rows:
                self.told += self.predict([row])
                inputs = {name: value for name, value in row.items() if name != self.target}
                self.model.learn_one(inputs, row[self.target])
        self.count += len(rows)

    def predict(self, rows: list[Row]) -> Told:
        asked = [{name: value for name, value in row.items() if name != self.target} for row in rows]
        with own_errors():
            if not self.classes:
                return [{"predicted": self.model.predict_one(x)} for x in asked]
            return [{f"p({name})": p for name, p in self.model.predict_proba_one(x).items()} for x in asked]

    def refused(self) -> None:
        try:
            self.model.learn_one({"a": 1.0}, None)
        except (ValueError, TypeError) as error:
            raise Refused(str(error)) from error


def serve_learned(run: Path) -> Any:
    """A server that goes on with what `natkal learn` left."""
    with own_errors():
        fresh = lambda limits: fresh_run(run, limits, Settings(targets=()), None)  # noqa: E731
        service = Service(run, fresh, limits=Limits(seconds=600), checkpoint_seconds=1e9)
        service.start(warm_up=False)
    return service


DOORS = {"file": FileDoor, "memory": MemoryDoor, "server": ServerDoor, "scikit": ScikitDoor, "river": RiverDoor}


# -- what they share ---------------------------------------------------------------------------------------------------


def natkal(*arguments: str) -> str:
    """What a command prints; refused where it ends with a sentence."""
    answer = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    if answer.exit_code:
        assert answer.stderr.strip(), f"exit code {answer.exit_code} and no word: {arguments}"
        raise Refused(answer.stderr)
    return answer.stdout


class own_errors:
    """Turn natkal's own errors into `Refused`, and let all others through."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not isinstance(error, ValueError | TypeError | StreamError):
            return
        while trace.tb_next is not None:
            trace = trace.tb_next
        place = trace.tb_frame.f_code.co_filename
        said = isinstance(error, StreamError) or isinstance(error.__cause__, StreamError)
        if said or "/natkal/api/" in place or "/natkal/integrations/" in place or "/sklearn/utils/" in place:
            raise Refused(str(error)) from error


def as_flags(options: dict[str, Any]) -> list[str]:
    """Options of Python as the command line spells them."""
    flags: list[str] = []
    for name, value in options.items():
        for one in value if isinstance(value, list) else [value]:
            flag = f"--{name.replace('_', '-')}"
            flags += [flag] if one is True else [flag, str(one)]
    return flags


def read_told(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer in one vocabulary: limits without their level, nothing but what was predicted."""
    told: dict[str, Any] = {}
    for name, value in answer.items():
        prefix, _, last = name.rpartition(".") if not name.endswith(")") else ("", "", name)
        if last.split("_")[0] in ("predicted", "low", "high") or "p(" in last:
            told[".".join(filter(None, (prefix, last.split("_")[0] if "p(" not in last else last)))] = value
    return told


def number(value: Any) -> float:
    """A cell of a table of numbers."""
    return math.nan if value is None else float(value)
