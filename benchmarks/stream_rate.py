"""1,000,000 rows x 10 numbers of CSV through a logistic model: natkal, river and scikit-learn, one after the other.

    python benchmarks/stream_rate.py [--rows 1000000] [--sklearn-rows 20000]

Each job reads the same file, predicts every row before learning it, standardises its features online, and runs in a
process of its own, whose wall-clock time (start-up and compilation included) and peak memory are printed. natkal runs
as `--learner single`, one filter as the others have one model, and as `--learner auto`, its default, a bank of filters;
each twice, before river and after it, since the machine may be busier at one time than another: ratios take the mean.
river takes its best learning rate of RATES by log loss on the first 100,000 rows. scikit-learn learns in chunks of one
row, which is slow: it gets the first rows of the file, and the table says how many.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COLUMNS = [f"x{i}" for i in range(10)]
RATES = (0.003, 0.01, 0.03, 0.1)


def write_data(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=10) / np.arange(1, 11)
    with path.open("w") as file:
        file.write(",".join([*COLUMNS, "y"]) + "\n")
        for first in range(0, rows, 50_000):
            count = min(50_000, rows - first)
            inputs = rng.normal(size=(count, 10)) * np.arange(1, 11)
            targets = inputs @ weights + rng.logistic(size=count) > 0
            np.savetxt(file, np.column_stack([inputs, targets]), fmt=["%.6g"] * 10 + ["%d"], delimiter=",")


def natkal_job(path: str, rows: int, rate: float, learner: str = "auto") -> dict:
    from typer.testing import CliRunner

    from natkal.cli import app

    with tempfile.TemporaryDirectory() as folder:
        arguments = ["learn", path, "--target", "y", "--model", "linear", "--learner", learner]
        answer = CliRunner().invoke(app, [*arguments, "--run", folder, "--json", "--no-report"])
    result = json.loads(answer.stdout)
    assert result["rows"]["learned"] == rows
    return {"log_loss": result["targets"][0]["log_loss"], "inner_seconds": result["seconds"]}


def single_job(path: str, rows: int, rate: float) -> dict:
    return natkal_job(path, rows, rate, "single")


def river_job(path: str, rows: int, rate: float) -> dict:
    from river import linear_model, optim, preprocessing, stream

    model = preprocessing.StandardScaler() | linear_model.LogisticRegression(optim.SGD(rate))
    converters = {**dict.fromkeys(COLUMNS, float), "y": int}
    loss, started = 0.0, time.perf_counter()
    for inputs, target in stream.iter_csv(path, target="y", converters=converters):
        chance = model.predict_proba_one(inputs)[bool(target)]
        loss -= np.log(max(chance, 1e-15))
        model.learn_one(inputs, bool(target))
    return {"log_loss": loss / rows, "inner_seconds": time.perf_counter() - started}


def sklearn_job(path: str, rows: int, rate: float) -> dict:
    from sklearn.linear_model import SGDClassifier
    from sklearn.preprocessing import StandardScaler

    scaler, model = StandardScaler(), SGDClassifier(loss="log_loss")
    loss, started = 0.0, time.perf_counter()
    with open(path) as file:
        next(file)
        for row in range(rows):
            values = np.array(next(file).split(","), dtype=float)[None]
            inputs, target = values[:, :-1], values[:, -1].astype(int)
            if row:
                chance = model.predict_proba(scaler.transform(inputs))[0, target[0]]
                loss -= np.log(max(chance, 1e-15))
            scaler.partial_fit(inputs)
            model.partial_fit(scaler.transform(inputs), target, classes=[0, 1])
    return {"log_loss": loss / rows, "inner_seconds": time.perf_counter() - started}


JOBS = {"natkal auto": natkal_job, "natkal single": single_job, "river": river_job, "scikit-learn": sklearn_job}


def measure(name: str, path: Path, rows: int, rate: float = 0.0) -> dict:
    command = [sys.executable, __file__, "--job", name, "--path", str(path), "--rows", str(rows), "--rate", str(rate)]
    started = time.perf_counter()
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - started
    return {"name": name, "rows": rows, "seconds": seconds, **json.loads(answer.stdout.splitlines()[-1])}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--sklearn-rows", type=int, default=20_000)
    parser.add_argument("--job", choices=JOBS)
    parser.add_argument("--path")
    parser.add_argument("--rate", type=float, default=0.0)
    arguments = parser.parse_args()
    if arguments.job:
        result = JOBS[arguments.job](arguments.path, arguments.rows, arguments.rate)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu = usage.ru_utime + usage.ru_stime
        print(json.dumps({**result, "peak_mb": usage.ru_maxrss / 1024, "cpu_seconds": cpu}))
        return
    with tempfile.TemporaryDirectory() as folder:
        path, few = Path(folder) / "rows.csv", Path(folder) / "few.csv"
        write_data(path, arguments.rows)
        few_rows = min(arguments.rows, 100_000)
        with path.open() as source, few.open("w") as target:
            target.writelines(line for line, _ in zip(source, range(few_rows + 1), strict=False))
        losses = {rate: measure("river", few, few_rows, rate)["log_loss"] for rate in RATES}
        best = min(losses, key=losses.__getitem__)
        results = [
            measure("natkal single", few, few_rows),
            measure("natkal single", path, arguments.rows),
            measure("natkal auto", path, arguments.rows),
            measure("river", path, arguments.rows, best),
            measure("natkal auto", path, arguments.rows),
            measure("natkal single", path, arguments.rows),
            measure("scikit-learn", path, min(arguments.rows, arguments.sklearn_rows)),
        ]
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; river: ", end="")
    print(", ".join(f"rate {rate:g} loss {loss:.4f}" for rate, loss in losses.items()) + f"; taken: {best:g}")
    columns = (("rows", 12), ("seconds", 10), ("cpu s", 8), ("rows/s", 12), ("learning only", 15), ("peak MB", 9))
    print(" " * 14 + "".join(f"{name:>{width}}" for name, width in (*columns, ("log loss", 10))))
    for result in results:
        rate, inner = result["rows"] / result["seconds"], result["rows"] / result["inner_seconds"]
        print(
            f"{result['name']:14}{result['rows']:>12,}{result['seconds']:>10.1f}{result['cpu_seconds']:>8.1f}{rate:>12,.0f}{inner:>15,.0f}"
            f"{result['peak_mb']:>9.0f}{result['log_loss']:>10.4f}"
        )
    theirs = results[3]
    for name, own in (("single", (results[1], results[5])), ("auto", (results[2], results[4]))):
        ratios = {
            title: theirs[part] / np.mean([result[part] for result in own])
            for title, part in (("whole", "seconds"), ("learning only", "inner_seconds"), ("processor", "cpu_seconds"))
        }
        text = ", ".join(f"{ratio:.1f} {title}" for title, ratio in ratios.items())
        print(f"natkal {name} over river: {text}")
    further = np.mean([results[1]["cpu_seconds"], results[5]["cpu_seconds"]]) - results[0]["cpu_seconds"]
    per_row = theirs["cpu_seconds"] / theirs["rows"] * (arguments.rows - few_rows) / max(further, 1e-9)
    print(f"natkal single over river, processor time of each row after the first {few_rows:,}: {per_row:.1f}")


if __name__ == "__main__":
    main()
