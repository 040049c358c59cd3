"""`python -m benchmarks same [quick|others] --other TREE`: do two source trees predict the same, and as fast?

48 cases, tasks x options x front ends; `quick` has twelve of them. Each runs in a process for each tree, by public
doors alone, compiled as a user compiles. Without --other the predictions of this tree are recorded (`--out`). The same
means: in bits; or within 1e-9 (1e-5 where members are float32) over the first 1,000 rows; or a mean loss within .1
percent, and then the first row that differs is printed. Times: rounds of both trees in turn, medians.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[1]
PARTS = ("quick", "others")
OPTIONS = {
    "other": ("", "folder of the tree to compare with"),
    "tree": (str(HERE), "folder of the tree itself"),
    "rounds": (3, "rounds that are timed, after one that compiles"),
    "out": ("", "folder for the predictions as .npz (thrown away unless given)"),
    "only": ("", "only cases whose name has this in it"),
}
FIRST_ROWS, SAME_LOSS = 1000, 1e-3

ONE = {"learner": "single", "model": "linear"}
SETS: dict[str, dict[str, Any]] = {
    "one": ONE,
    "default": {},
    "fast": {"budget": "fast"},
    "network": {"learner": "single", "model": "mlp:8"},
    "gru": {"learner": "single", "model": "gru:4"},
    "lags": {**ONE, "past": "1,2,7"},
    "key": {**ONE, "key": "k"},
    "keys": {"budget": "fast", "key": "k"},
    "id": {**ONE, "id": "i"},
    "delay": {**ONE, "label_delay": 20},
    "memory": {"memory": "200kB"},
    "budget": {"budget": "50"},
    "reject": {**ONE, "missing": "reject"},
}
"""Options by name: one line for another."""
FULL = {
    "file": {
        "number": "one default fast network gru lags key keys delay memory",
        "positive": "one default",
        "count": "one default",
        "binary": "one default fast gru id budget",
        "classes": "one default network key memory",
        "two": "one default",
    },
    "memory": {"number": "one", "binary": "fast", "classes": "reject"},
    "command": {"number": "one", "classes": "fast"},
    "scikit": {"number": "one default", "count": "one", "binary": "one fast", "classes": "one default"},
    "river": {"number": "one fast", "binary": "one default", "classes": "one"},
    "serve": {"number": "one fast", "classes": "one default"},
}
QUICK = (
    "file number one",
    "file number fast",
    "file number gru",
    "file number key",
    "file binary default",
    "file binary id",
    "file classes network",
    "file two one",
    "memory number one",
    "scikit classes one",
    "river binary one",
    "serve number one",
)
ROWS = {"one": 4000, "default": 1500, "river": 1000, "serve": 1000}
"""Rows of a case by its options or its front end, 2,000 of others."""


def cases(part: str) -> dict[str, dict[str, Any]]:
    """The cases of a part by name."""
    found = {}
    for front, tasks in FULL.items():
        for task, sets in tasks.items():
            for chosen in sets.split():
                name = f"{front} {task} {chosen}"
                options = {"task": {"two": None, "classes": "multiclass", "number": "regression"}.get(task, task)}
                options = {n: v for n, v in options.items() if v} if front in ("file", "memory", "command") else {}
                rows = min(ROWS.get(front, 4000), ROWS.get(chosen, 2000))
                found[name] = {"front": front, "task": task, "options": options | SETS[chosen], "rows": rows}
    return {name: case for name, case in found.items() if (name in QUICK) == (part == "quick")}


class Worker:
    """A process that runs one case of one tree, a round for each line."""

    def __init__(self, tree: str, case: dict[str, Any], out: Path):
        environment = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "NATKAL_DTYPE")}
        environment |= {"PYTHONPATH": f"{Path(tree).resolve()}/src", "JAX_ENABLE_COMPILATION_CACHE": "0"}
        command = [sys.executable, str(HERE / "benchmarks" / "same_worker.py"), json.dumps(case), str(out)]
        self.out, self.errors = out, tempfile.TemporaryFile("w+")  # noqa: SIM115
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        self.process = subprocess.Popen(command, env=environment, text=True, **pipes)

    def round(self) -> float:
        """Seconds of one round."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise RuntimeError(self.errors.read()[-2000:])
        return json.loads(line)["seconds"]

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()
        self.errors.close()


def run_part(part: str, report: Callable[[str], None], **chosen: Any) -> dict[str, Any]:
    """Every case of a part, on one tree or on two."""
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(chosen["out"] or place)
        folder.mkdir(parents=True, exist_ok=True)
        for name, case in cases(part).items():
            if chosen["only"] in name:
                rows.append({"case": name, **run_case(name, case, folder, chosen)})
                report(", ".join(f"{key} {value}" for key, value in rows[-1].items()))
    return {"rows": rows, "passed": all(row["same"] not in ("no", "failed") for row in rows)}


def run_case(name: str, case: dict[str, Any], folder: Path, chosen: dict[str, Any]) -> dict[str, Any]:
    """One case: a process for each tree, in turn."""
    trees = {"this": chosen["tree"]} | ({"other": chosen["other"]} if chosen["other"] else {})
    workers = {
        tree: Worker(path, case, folder / f"{name.replace(' ', '-')}-{tree}.npz") for tree, path in trees.items()
    }
    try:
        cold = {tree: worker.round() for tree, worker in workers.items()}
        warm: dict[str, list[float]] = {tree: [] for tree in workers}
        for number in range(chosen["rounds"]):
            for tree in list(workers)[:: 1 if number % 2 else -1]:
                warm[tree].append(workers[tree].round())
    except RuntimeError as error:
        last = str(error).strip().splitlines()[-1:] or ["no word"]
        return {"same": "failed", "where": last[0][:120], "rows_a_second": 0, "compile_s": 0.0}
    finally:
        for worker in workers.values():
            worker.close()
    usual = {tree: statistics.median(seconds) for tree, seconds in warm.items()}
    found = {"same": "recorded", "where": ""}
    if "other" in workers:
        found = compare(
            np.load(workers["this"].out), np.load(workers["other"].out), single="learner" in case["options"]
        )
    rate, compiling = case["rows"] / usual["this"], cold["this"] - usual["this"]
    found |= {"rows_a_second": round(rate), "compile_s": round(compiling, 2)}
    if "other" in workers:
        before = max(cold["other"] - usual["other"], 1e-3)
        found |= {"speed_ratio": usual["other"] / usual["this"], "compile_ratio": compiling / before}
    return found


def compare(this: Any, other: Any, *, single: bool) -> dict[str, Any]:
    """How far two recordings agree, and where they first do not."""
    left, right = this["told"], other["told"]
    if left.shape != right.shape:
        return {"same": "no", "where": f"{left.shape} numbers, {right.shape} in the other tree"}
    if left.tobytes() == right.tobytes():
        return {"same": "bits", "where": ""}
    scale = np.maximum(np.maximum(abs(left), abs(right)), 1e-3)
    apart = np.where(np.isnan(left) & np.isnan(right), 0.0, abs(left - right) / scale).max(axis=1)
    apart = np.where(np.isnan(apart), np.inf, apart)
    bound = 1e-9 if single else 1e-5
    first = apart[:FIRST_ROWS]
    where = f"at most {first.max():.1e} in the first {len(first)} rows, {apart.max():.1e} in all"
    if first.max() <= bound:
        return {"same": f"{bound:g}", "where": where}
    loss = abs(np.nanmean(this["losses"]) / np.nanmean(other["losses"]) - 1)
    where = f"from row {int((first > bound).argmax()) + 1} on ({where}), mean loss {loss:.2%} apart"
    return {"same": "loss" if loss <= SAME_LOSS else "no", "where": where}


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """What a person reads of the results."""
    rows = [row for result in results.values() for row in result["rows"]]
    names = ("case", "same", "rows_a_second", "compile_s", "speed_ratio", "compile_ratio", "where")
    rows = [dict.fromkeys(names, "") | row for row in rows]
    failed = sum(row["same"] in ("no", "failed") for row in rows)
    title = (
        f"{len(rows)} cases, {failed} differ; this tree's speed over the other's (above 1 is faster), compile seconds"
    )
    return [(title, rows, names)]
