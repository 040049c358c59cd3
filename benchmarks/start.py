"""How long the first answer takes, in processes of their own: without compiled programs, and with those of before.

Figures are over one unit, a process that imports jax and runs one jitted addition, the least of all rounds; the cases
take turns. Processor time tells more than the clock where other work runs beside.
"""

import json
import math
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.process import Ended, measured

COUNTED = """
import atexit, json, sys
import jax
from jax import monitoring
seen = {"programs": 0, "xla_s": 0.0, "tracing_s": 0.0}
def note(name, seconds, **_):
    if "backend_compile" in name:
        seen["programs"] += 1
        seen["xla_s"] += seconds
    elif "trace" in name or "mlir" in name:
        seen["tracing_s"] += seconds
monitoring.register_event_duration_secs_listener(note)
atexit.register(lambda: print("counted", json.dumps(seen), file=sys.stderr))
"""
UNIT = COUNTED + "print(jax.jit(lambda x: x + 1)(1.0))"
COMMAND = COUNTED + "sys.argv[0] = 'natkal'\nfrom natkal.cli import main\nmain()"
PREDICT = COUNTED + (
    "import natkal as nk\nrun = nk.learn(sys.argv[1], target='y')\n"
    "print(run.predict([{'x0': .1 * i, 'x1': .2, 'x2': -.1} for i in range(5)]))"
)
ROWS, SERIES = 260, 300


def start(rounds: int, report: Callable[[str], None]) -> list[dict[str, Any]]:
    """A row for each case: least seconds and processor seconds in units, programs, seconds of XLA and of tracing."""
    found: dict[str, list[Ended]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for turn in range(rounds):
            for case, command, caches in _cases(folder, turn):
                report(f"round {turn + 1}, {case}")
                ended = measured([sys.executable, *command], {"NATKAL_CACHE": str(caches)})
                if ended.code:
                    raise RuntimeError(f"{case}: {ended.complaint}")
                found.setdefault(case, []).append(ended)
    unit = min(ended.seconds for ended in found["unit"]), min(ended.cpu_seconds for ended in found["unit"])
    return [_row(case, all_of, unit) for case, all_of in found.items()]


def _row(case: str, all_of: list[Ended], unit: tuple[float, float]) -> dict[str, Any]:
    counted = [json.loads(line[8:]) for line in all_of[-1].errors.splitlines() if line.startswith("counted ")]
    seconds, cpu = (sorted(getattr(ended, name) for ended in all_of) for name in ("seconds", "cpu_seconds"))
    return {
        "case": case,
        "units": seconds[0] / unit[0],
        "median_units": statistics.median(seconds) / unit[0],
        "cpu_units": cpu[0] / unit[1],
        **counted[-1],
    }


def _cases(folder: Path, turn: int) -> list[tuple[str, list[str], Path]]:
    """Name, arguments of Python, and the folder of programs, in the order in which one needs the other."""
    tables, forecasts = folder / f"tables-{turn}", folder / f"forecasts-{turn}"
    three, five, series = (folder / f"{name}.csv" for name in ("three", "five", "series"))
    if turn == 0:
        _write(three, 3)
        _write(five, 5)
        values = (10 + math.sin(row / 6) + 0.1 * random.Random(row).gauss(0, 1) for row in range(SERIES))
        series.write_text("y\n" + "".join(f"{value:.4f}\n" for value in values))

    def learn(data: Path) -> list[str]:
        run = os.fspath(data.with_suffix(""))
        return ["-c", COMMAND, "learn", os.fspath(data), "--target", "y", "--run", run, "--overwrite"]

    forecast = ["-c", COMMAND, "forecast", os.fspath(series.with_suffix("")), "--horizon", "12"]
    predict = ["-c", PREDICT, os.fspath(three)]
    return [
        ("unit", ["-c", UNIT], tables),
        ("learn, fresh", learn(three), tables),
        ("learn, second process", learn(three), tables),
        ("learn, five columns after three", learn(five), tables),
        ("learn and predict, after learn", predict, tables),
        ("learn and predict, second process", predict, tables),
        ("learn a series, fresh", learn(series), forecasts),
        ("forecast, fresh", forecast, forecasts),
        ("forecast, second process", forecast, forecasts),
    ]


def _write(path: Path, columns: int) -> None:
    """A regression with columns of noise, one of which is not linear."""
    draw = random.Random(columns)
    lines = [",".join([*(f"x{column}" for column in range(columns)), "y"])]
    for _ in range(ROWS):
        row = [draw.gauss(0, 1) for _ in range(columns)]
        target = 2 * row[0] - row[1] + math.sin(3 * row[2]) + draw.gauss(0, 0.3)
        lines.append(",".join(f"{number:.4f}" for number in [*row, target]))
    path.write_text("\n".join(lines) + "\n")
