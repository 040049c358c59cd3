"""`python -m benchmarks latency`: one observation per call against a scan; and how long the first answer takes."""

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import natkal as nk
from benchmarks.dense import make_model, rows_for, scanned
from benchmarks.start import start
from benchmarks.timing import Held, interleaved

PARTS = ("call", "first", "start")
OPTIONS = {"rounds": (2, "of start: rounds, the least of which counts")}
CALLS = 500
FIRST = """
import time
started = time.perf_counter()
import jax
import natkal as nk
model = nk.static_model(nk.mlp_apply, nk.mlp_params(jax.random.key(0), (10, 17, 1)), nk.families.Gaussian(1.0))
learner = nk.online(model, prior_cov=0.1)
service = nk.live(learner, learner.init(model.params))
float(service.step(jax.numpy.ones(10), 1.0).log_prob)
print(time.perf_counter() - started)
"""
Report = Callable[[str], None]


def call(hidden: int = 17) -> dict[str, Any]:
    """Microseconds per observation: in a scan, and by calls that wait for each prediction."""
    model = make_model(hidden, 1, "float32")
    learner = nk.online(model, prior_cov=0.1, rates=nk.fading(1e-3))
    inputs, targets = rows_for(model, CALLS, "float32")
    service = nk.live(learner, learner.init(model.params))
    rows = list(zip(np.asarray(inputs), np.asarray(targets), strict=True))

    def calls() -> Any:
        for row, target in rows:
            service.step_unchecked(row, target)

    def checked() -> Any:
        for row, target in rows:
            service.step(row, target)

    scan = Held(scanned(learner), jax.tree.map(lambda leaf: leaf.copy(), learner.init(model.params)), inputs, targets)
    times = interleaved({"scan": scan, "calls": calls, "checked": checked})
    micro = {name: 1e6 * seconds / CALLS for name, seconds in times.items()}
    return {
        "parameters": model.size,
        "scan_us": micro["scan"],
        "call_us": micro["calls"],
        "checked_call_us": micro["checked"],
        "beyond_scan_us": micro["calls"] - micro["scan"],
    }


def first() -> dict[str, Any]:
    """Seconds from a new Python to the first answer: import, compile, one step; p = 205. The best of three."""
    seconds, whole = [], []
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True)
        whole.append(time.perf_counter() - started)
        seconds.append(float(done.stdout))
    return {"first_s": min(seconds), "with_python_s": min(whole)}


def run_part(part: str, report: Report, *, rounds: int = 2) -> dict[str, Any]:
    """One part's numbers."""
    report(f"latency: {part}")
    if part == "start":
        return {"rows": start(rounds, report)}
    return {"rows": [call() if part == "call" else first()]}


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """What a person reads of the results."""
    titles = {
        "call": "One observation per call",
        "first": "From a new Python to the first answer",
        "start": "The first answer about a table, in units of a process that runs one jitted addition",
    }
    return [(titles[part], rows["rows"], tuple(rows["rows"][0])) for part, rows in results.items()]
