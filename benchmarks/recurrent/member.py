"""What the recurrent group of the default mixture gains on a series: log loss of a table with its target only."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.streams import series
from natkal.settings.options import Options
from natkal.tables.table import TableLearner, TargetShape


def streams(seed: int = 5) -> dict[str, np.ndarray]:
    """Five series of this benchmark, and generated ones with and without a memory that lags do not see."""
    found = [series.sunspots(), series.el_nino(), series.co2(), series.mackey_glass(), series.sea_surface()]
    values = {one.name: one.targets.astype(float)[:2500] for one in found}
    values["CO2"] = np.diff(values["CO2"])
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=2001)
    chaotic = values["Mackey-Glass"]
    regimes = np.cumsum(rng.random(2000) < 0.03) % 2
    return {
        **values,
        "MA(1)": noise[1:] + 0.8 * noise[:-1],
        "level under noise": np.cumsum(0.3 * rng.normal(size=2000)) + rng.normal(size=2000),
        "two regimes": 2.0 * regimes - 1 + rng.normal(size=2000),
        "Mackey-Glass and noise": chaotic + 0.1 * chaotic.std() * rng.normal(size=len(chaotic)),
        "noise": rng.normal(size=1500),
    }


def member(report: Callable[[str], None]) -> dict[str, Any]:
    """Log loss without and with the group, and milliseconds of a row (compilation counts in the first series)."""
    rows = []
    for name, values in streams().items():
        report(name)
        row: dict[str, Any] = {"series": name, "points": len(values)}
        for label, in_order in (("without", False), ("with", True)):
            learner = TableLearner(Options(), [], [TargetShape("regression")], limits=False, in_order=in_order)
            started = time.perf_counter()
            told = learner.learn(learner.rows(np.zeros((len(values), 0)), values[:, None])).wait()
            row[f"ms_{label}"] = 1e3 * (time.perf_counter() - started) / len(values)
            row[label] = float(-np.mean(told.targets[0].log_prob))
        rows.append(row)
    return {"rows": rows}
