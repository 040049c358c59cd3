"""`python -m benchmarks rate`: whole processes from start to exit, natkal and others on the same rows in one run.

`logistic`: 1,000,000 rows of ten numbers with a logistic truth. natkal at its default; with `--model linear`, a bank of
filters; and with `--model linear --learner single`, one filter, as the others have one model. River takes its best rate
of RATES by log loss on the first 100,000 rows. Vowpal Wabbit reads the rows from its own text format, which is written
before its time is taken. scikit-learn learns in chunks of one row, which is slow: it gets the first rows of the file.
`classes`: 26 classes, 16 columns, 20,000 rows, natkal at its default and with `--model linear`.

Every row is predicted before it is learned. natkal keeps what it compiles for its next run: a first run on few rows
compiles, and is left out. "inner" leaves out the start of the process, during which natkal has begun to read. Quick
commands run twice, at the beginning and at the end, since a machine may be busier at one time than at another; ratios
take the mean.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.process import learn, measured

PARTS = ("logistic", "classes")
OPTIONS = {"rows": (1_000_000, "rows of the part logistic"), "few": (20_000, "rows that scikit-learn gets")}
COLUMNS = [f"x{i}" for i in range(10)]
RATES = (0.003, 0.01, 0.03, 0.1)
TRIAL_ROWS = 100_000
LIMIT_S = 3600.0
NATKAL = {
    "natkal, one linear filter": ("--model", "linear", "--learner", "single"),
    "natkal, linear bank": ("--model", "linear"),
    "natkal, default": (),
}
SHOWN = ("what", "rows", "seconds", "inner_seconds", "cpu_seconds", "rows_per_second", "peak_mb", "log_loss")


def run_part(part: str, report: Callable[[str], None], rows: int, few: int) -> dict[str, Any]:
    """One part's times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if part == "classes":
            return {"rows": classes(folder, report)}
        return logistic(folder, rows, few, report)


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """Times, and ratios to those of river and Vowpal Wabbit."""
    machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    found: list[Any] = [(f"{part}, {machine}", result["rows"], SHOWN) for part, result in results.items()]
    for result in results.values():
        if "ratios" in result:
            title = "Rate of natkal over river's, and time of natkal over Vowpal Wabbit's"
            found.append((title, result["ratios"], tuple(result["ratios"][0])))
    return found


def logistic(folder: Path, rows: int, few: int, report: Callable[[str], None]) -> dict[str, Any]:
    """The million rows."""
    path, trial, text = folder / "rows.csv", folder / "trial.csv", folder / "rows.txt"
    write_rows(path, text, rows)
    trial_rows = min(rows, TRIAL_ROWS)
    with path.open() as source, trial.open("w") as target:
        target.writelines(line for line, _ in zip(source, range(trial_rows + 1), strict=False))
    losses = {rate: other("river", trial, trial_rows, rate)["log_loss"] for rate in RATES}
    best = min(losses, key=losses.__getitem__)
    for options in NATKAL.values():
        own("compiles", trial, options)
    found = []

    def take(what: str, measure: Callable[[], dict[str, Any]]) -> None:
        found.append({"what": what, **measure()})
        report(f"{what}: {found[-1]['seconds']:.1f} s")

    single, bank, _ = NATKAL
    for what in (single, bank):
        take(what, lambda what=what: own(what, path, NATKAL[what]))
    take("Vowpal Wabbit", lambda: other("vowpal", text, rows))
    take(f"river, rate {best:g}", lambda: other("river", path, rows, best))
    take("natkal, default", lambda: own("", path, ()))
    take("scikit-learn", lambda: other("scikit-learn", path, min(rows, few)))
    take("Vowpal Wabbit", lambda: other("vowpal", text, rows))
    for what in (bank, single):
        take(what, lambda what=what: own(what, path, NATKAL[what]))
    return {"rows": found, "ratios": [ratios(what, found) for what in NATKAL], "river_losses": losses}


def ratios(what: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """natkal's rate over river's, whole, inner and by processor time; its time over Vowpal Wabbit's."""

    def mean(name: str, column: str) -> float:
        return float(np.mean([row[column] for row in found if row["what"].startswith(name)]))

    columns = {"whole": "seconds", "inner": "inner_seconds", "processor": "cpu_seconds"}
    over = {f"over_river_{name}": mean("river", column) / mean(what, column) for name, column in columns.items()}
    return {"what": what, **over, "of_vowpal_wabbit": mean(what, "seconds") / mean("Vowpal", "seconds")}


def classes(folder: Path, report: Callable[[str], None]) -> list[dict[str, Any]]:
    """The table of 26 classes."""
    from benchmarks.streams.generated import twenty_six

    path, trial = folder / "rows.csv", folder / "trial.csv"
    twenty_six().write(path)
    twenty_six().head(2_000).write(trial)
    found = []
    for what, options in (("natkal, default", ()), ("natkal, linear bank", ("--model", "linear"))):
        own(what, trial, options)
        found.append({"what": what, **own(what, path, options)})
        report(f"{what}: {found[-1]['seconds']:.1f} s")
    return found


def write_rows(path: Path, text: Path, rows: int) -> None:
    """The rows as CSV and in Vowpal Wabbit's format."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=10) / np.arange(1, 11)
    with path.open("w") as table, text.open("w") as lines:
        table.write(",".join([*COLUMNS, "y"]) + "\n")
        for first in range(0, rows, 50_000):
            count = min(50_000, rows - first)
            inputs = rng.normal(size=(count, 10)) * np.arange(1, 11)
            targets = inputs @ weights + rng.logistic(size=count) > 0
            np.savetxt(table, np.column_stack([inputs, targets]), fmt=["%.6g"] * 10 + ["%d"], delimiter=",")
            form = "%d | " + " ".join(f"{name}:%.6g" for name in COLUMNS)
            np.savetxt(lines, np.column_stack([2 * targets - 1, inputs]), fmt=form)


def own(what: str, path: Path, options: tuple[str, ...]) -> dict[str, Any]:
    """`natkal learn`, with a folder of its own for what it compiles, empty at first."""
    environment = {"NATKAL_CACHE": str(path.parent / "cache"), "PYTHONDONTWRITEBYTECODE": ""}
    answer, ended = learn(path, *options, environment=environment, limit_s=LIMIT_S)
    if answer is None:
        raise SystemExit(f"{what or 'natkal'}: {ended.complaint}")
    target = answer["targets"][0]
    return _row(target["rows"], answer["seconds"], target["log_loss"], ended)


def other(name: str, path: Path, rows: int, rate: float = 0.0) -> dict[str, Any]:
    """Another library in a process of its own, which runs this file."""
    command = [sys.executable, "-m", "benchmarks.rate", name, str(path), str(rows), str(rate)]
    ended = measured(command, limit_s=LIMIT_S)
    if ended.code:
        raise SystemExit(f"{name}: {ended.complaint}")
    answer = json.loads(ended.output)
    return _row(rows, answer["seconds"], answer["log_loss"], ended)


def _row(rows: int, inner: float, loss: float, ended: Any) -> dict[str, Any]:
    return {
        "rows": rows,
        "seconds": ended.seconds,
        "inner_seconds": inner,
        "cpu_seconds": ended.cpu_seconds,
        "rows_per_second": rows / ended.seconds,
        "peak_mb": ended.peak_mb,
        "log_loss": loss,
    }


def river_job(path: str, rows: int, rate: float) -> float:
    """A scaler and a logistic regression."""
    from river import linear_model, optim, preprocessing, stream

    model = preprocessing.StandardScaler() | linear_model.LogisticRegression(optim.SGD(rate))
    converters: dict[Any, Any] = {**dict.fromkeys(COLUMNS, float), "y": int}
    loss = 0.0
    for inputs, target in stream.iter_csv(path, target="y", converters=converters):
        loss -= np.log(max(model.predict_proba_one(inputs)[bool(target)], 1e-15))
        model.learn_one(inputs, bool(target))
    return loss / rows


def sklearn_job(path: str, rows: int, rate: float) -> float:
    """A scaler and SGD, one row at a time."""
    from sklearn.linear_model import SGDClassifier
    from sklearn.preprocessing import StandardScaler

    scaler, model, loss = StandardScaler(), SGDClassifier(loss="log_loss"), 0.0
    with open(path) as file:
        next(file)
        for row in range(rows):
            values = np.array(next(file).split(","), dtype=float)[None]
            inputs, target = values[:, :-1], values[:, -1].astype(int)
            if row:
                loss -= np.log(max(model.predict_proba(scaler.transform(inputs))[0, target[0]], 1e-15))
            scaler.partial_fit(inputs)
            model.partial_fit(scaler.transform(inputs), target, classes=[0, 1])
    return loss / rows


def vowpal_job(path: str, rows: int, rate: float) -> float:
    """Vowpal Wabbit at its default rate; the loss is its own progressive one."""
    from vowpalwabbit import Workspace

    workspace = Workspace(arg_list=["--loss_function", "logistic", "--quiet", "-d", path])
    loss = workspace.get_sum_loss() / workspace.get_weighted_examples()
    workspace.finish()
    return loss


JOBS = {"river": river_job, "scikit-learn": sklearn_job, "vowpal": vowpal_job}

if __name__ == "__main__":
    began = time.perf_counter()
    log_loss = JOBS[sys.argv[1]](sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    print(json.dumps({"log_loss": log_loss, "seconds": time.perf_counter() - began}))
