"""One process of `python -m benchmarks same`: a case of one source tree, through public doors alone.

Reads a line for each round on standard input and answers with one: {"seconds": ...}. The first round compiles. After it
`CASE.npz` has what was predicted of each row, and the losses.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
KEYS = 40


def table(task: str, count: int, options: dict[str, Any], numbers_only: bool) -> list[Row]:
    """Four numbers and a word; a key or an id where the options name one."""
    rng = np.random.default_rng(5)
    values, noise = rng.normal(size=(count, 4)).round(4), rng.gumbel(size=(count, 5))
    words = rng.integers(4, size=count)
    score = values @ [2.0, -1.0, 0.5, 0.0] + np.sin(2 * values[:, 3]) + (words == 1) * (not numbers_only)
    targets = {
        "number": (10 + score + 0.3 * noise[:, 0]).round(4).tolist(),
        "positive": np.exp(0.4 * score + 0.3 * noise[:, 0]).round(4).tolist(),
        "count": rng.poisson(np.exp(0.3 * score)).tolist(),
        "binary": [("no", "yes")[int(value)] for value in score > noise[:, 0] - noise[:, 1]],
        "classes": [f"c{k}" for k in (np.outer(score, np.cos(np.arange(5))) + noise).argmax(axis=1)],
    }
    rows = []
    for number, cells in enumerate(values.tolist()):
        row: Row = dict(zip("abcd", cells, strict=True)) | ({} if numbers_only else {"w": "word " + str(words[number])})
        row |= {"k": f"key {number * 7 % KEYS}"} if "key" in options else {}
        row |= {"i": f"id {number}"} if "id" in options else {}
        row |= {"y": targets["number" if task == "two" else task][number]}
        rows.append(row | ({"z": targets["binary"][number]} if task == "two" else {}))
    return rows


def learn(front: str, task: str, options: dict[str, Any], rows: list[Row], folder: Path) -> tuple[list[Row], Any]:
    """What was predicted of each row, and the figures of the run where the door has any."""
    targets = ["y", "z"] if task == "two" else ["y"]
    told, data = folder / "told.jsonl", folder / "d.jsonl"
    if front in ("file", "memory"):
        import natkal as nk

        given: Any = rows if front == "memory" else data
        run = nk.learn(given, target=targets, predictions=told, progress=False, **options)
        return [json.loads(line) for line in told.read_text().splitlines()], run.metrics
    if front == "command":
        flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        command = [sys.executable, "-m", "natkal", "learn", str(data), "--target", "y", *flags, "--overwrite", "--json"]
        command += ["--no-report", "--run", str(folder / "run"), "--predictions", str(told)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return [json.loads(line) for line in told.read_text().splitlines()], json.loads(done.stdout)["targets"][0]
    if front == "serve":
        return served(options, rows, folder), None
    return by_estimator(front, task, options, rows), None


def by_estimator(front: str, task: str, options: dict[str, Any], rows: list[Row]) -> list[Row]:
    """scikit-learn in blocks of 20 rows, river one row at a time: each predicted, then learned."""
    labels = [row["y"] for row in rows]
    if front == "scikit":
        from natkal import sklearn as door

        kinds = {"number": door.KalmanRegressor, "count": door.KalmanCountRegressor}
        model: Any = kinds.get(task, door.KalmanClassifier)(**options)
        inputs, found = np.array([[row[name] for name in "abcd"] for row in rows]), []
        classes = {} if task in kinds else {"classes": sorted(set(labels))}
        for at in range(0, len(rows), 20):
            block, known = inputs[at : at + 20], {} if at else classes
            if at and task in kinds:
                found += [{"predicted": value} for value in model.predict(block).tolist()]
            elif at:
                names = [f"p({name})" for name in model.classes_]
                found += [dict(zip(names, p, strict=True)) for p in model.predict_proba(block).tolist()]
            model.partial_fit(block, np.array(labels[at : at + 20]), **known)
        return found
    from natkal import river as door

    model = (door.KalmanRegressor if task == "number" else door.KalmanClassifier)(**options)
    found = []
    for row, label in zip(rows, labels, strict=True):
        x = {name: row[name] for name in "abcd"}
        if task == "number":
            found.append({"predicted": model.predict_one(x)})
        else:
            found.append({f"p({name})": p for name, p in model.predict_proba_one(x).items()})
        model.learn_one(x, label)
    return found


def served(options: dict[str, Any], rows: list[Row], folder: Path) -> list[Row]:
    """A new run behind HTTP: single rows, then requests of 50."""
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    with tempfile.TemporaryDirectory(dir=folder) as run:
        command = [sys.executable, "-m", "natkal", "serve", f"{run}/run", "--target", "y", *flags, "--port", "0"]
        command += ["--schema", str(folder / "d.jsonl"), "--json"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            lines = iter(server.stdout.readline, "")
            told = "".join(takewhile(lambda line: line.rstrip() != "}", lines)) + "}"
            address = json.loads(told)["address"]
            found: list[Row] = []
            single = len(rows) // 10
            for at in [*range(single), *range(single, len(rows), 50)]:
                posted = rows[at : at + (1 if at < single else 50)]
                body = json.dumps(posted).encode()
                asked = urllib.request.Request(f"{address}/predict_learn", body, {"content-type": "application/json"})
                with urllib.request.urlopen(asked, timeout=120) as answer:
                    found += json.load(answer)["predictions"]
        finally:
            server.terminate()
            server.wait(60)
    flat = [one | {f"p({name})": p for name, p in one.get("probabilities", {}).items()} for one in found]
    return [{name: cell for name, cell in one.items() if isinstance(cell, float)} for one in flat]


def numbers(told: list[Row]) -> np.ndarray:
    """All numbers that were predicted, (rows, numbers), NaN where there is none."""
    left_out = ("line", "probabilities")
    names = sorted({name for row in told for name in row if name not in left_out and "observed" not in name})
    cells = [[row.get(name) for name in names] for row in told]
    return np.array([[np.nan if v is None or isinstance(v, str) else float(v) for v in row] for row in cells])


def losses(told: list[Row], rows: list[Row]) -> np.ndarray:
    """Of classes minus the logarithm of the probability, of numbers the squared error; of the rows that were told."""
    found = []
    for row, one in zip(rows[len(rows) - len(told) :], told, strict=True):
        label, names = row["y"], [name for name in one if name.startswith(("p(", "y.p("))]
        if isinstance(label, str):  # before its class was seen, a row has no probability
            found.append(-np.log(next((one[name] for name in names if name.endswith(f"({label})")), np.nan)))
        else:
            guess = one.get("predicted", one.get("y.predicted", one.get("prediction")))
            found.append((label - guess) ** 2)
    return np.array(found)


def main() -> None:
    """Case as JSON, and where its results go."""
    case, out = json.loads(sys.argv[1]), Path(sys.argv[2])
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "0"
    answers = sys.stdout
    front, task, options = case["front"], case["task"], case["options"]
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(sys.stderr):
        folder = Path(place)
        rows = table(task, case["rows"], options, front in ("scikit", "river"))
        (folder / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for number, _ in enumerate(sys.stdin):
            started = time.perf_counter()
            told, metrics = learn(front, task, options, rows, folder)
            seconds = time.perf_counter() - started
            if number == 0:
                by_row = losses(told, rows) if len(told) <= len(rows) else np.array([metrics["log_loss"]])
                np.savez(out, told=numbers(told), losses=by_row)
            print(json.dumps({"seconds": seconds}), file=answers, flush=True)


if __name__ == "__main__":
    main()
