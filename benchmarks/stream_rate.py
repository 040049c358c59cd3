"""1,000,000 rows x 10 numbers of CSV through a logistic model: natkal, river and scikit-learn, one after the other.

    python benchmarks/stream_rate.py [--rows 1000000] [--sklearn-rows 20000]

Each job reads the same file, predicts every row before learning it, standardises its features online, and runs in a
process of its own, whose wall-clock time from start to exit and peak memory are printed. natkal runs as `--learner
single`, one filter as the others have one model, and as `--learner auto`, its default, a bank of filters; each twice,
before river and after it, since the machine may be busier at one time than another: ratios take the mean. What natkal
compiles it keeps for its next run: its first run of each kind, on few rows, compiles, and the others do not. "learning
only" leaves out start-up, during which natkal has begun to read.
river takes its best learning rate of RATES by log loss on the first 100,000 rows. scikit-learn learns in chunks of one
row, which is slow: it gets the first rows of the file, and the table says how many.
"""

import argparse
import json
import os
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


JOBS = {"river": river_job, "scikit-learn": sklearn_job}


def measure(name: str, path: Path, rows: int, rate: float = 0.0) -> dict:
    """Run a job as a process of its own: its wall-clock and processor time from start to exit, and its peak memory."""
    kind, _, learner = name.partition(" ")
    if kind == "natkal":
        command = ["-m", "natkal", "learn", str(path), "--target", "y", "--model", "linear", "--learner", learner]
        command += ["--run", str(path.parent / "run"), "--overwrite", "--json", "--no-report"]
    else:
        command = [__file__, "--job", name, "--path", str(path), "--rows", str(rows), "--rate", str(rate)]
    # Programs that natkal compiles are kept for its next run, in a folder that is empty at first; so is its byte code.
    environment = {**os.environ, "NATKAL_CACHE": str(path.parent / "cache"), "PYTHONDONTWRITEBYTECODE": ""}
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        answer = json.loads(process.stdout.read())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    assert process.returncode == 0
    if kind == "natkal":
        assert answer["rows"]["learned"] == rows
        answer = {"log_loss": answer["targets"][0]["log_loss"], "inner_seconds": answer["seconds"]}
    cpu = usage.ru_utime + usage.ru_stime
    return {
        "name": name,
        "rows": rows,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_mb": usage.ru_maxrss / 1024,
    } | answer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--sklearn-rows", type=int, default=20_000)
    parser.add_argument("--job", choices=JOBS)
    parser.add_argument("--path")
    parser.add_argument("--rate", type=float, default=0.0)
    arguments = parser.parse_args()
    if arguments.job:
        print(json.dumps(JOBS[arguments.job](arguments.path, arguments.rows, arguments.rate)))
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
            measure("natkal single", few, few_rows),
            measure("natkal single", path, arguments.rows),
            measure("natkal auto", few, few_rows),
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
    theirs = results[5]
    for name, own in (("single", (results[2], results[7])), ("auto", (results[4], results[6]))):
        ratios = {
            title: theirs[part] / np.mean([result[part] for result in own])
            for title, part in (("whole", "seconds"), ("learning only", "inner_seconds"), ("processor", "cpu_seconds"))
        }
        text = ", ".join(f"{ratio:.1f} {title}" for title, ratio in ratios.items())
        print(f"natkal {name} over river: {text}")
    further = np.mean([results[2]["cpu_seconds"], results[7]["cpu_seconds"]]) - results[1]["cpu_seconds"]
    per_row = theirs["cpu_seconds"] / theirs["rows"] * (arguments.rows - few_rows) / max(further, 1e-9)
    print(f"natkal single over river, processor time of each row after the first {few_rows:,}: {per_row:.1f}")


if __name__ == "__main__":
    main()
