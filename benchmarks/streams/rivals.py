"""Rivals at their best setting in hindsight: run once, kept in `rivals.json` beside this file.

A folder keeps every score of every setting, one JSON file for each stream, and a run adds only what is missing.
`rivals.json` is made of that folder: for each stream and method the settings that are best by some score.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.streams.attempt import Attempt
from benchmarks.streams.scores import HIGHER_IS_BETTER, scores
from benchmarks.streams.stream import Stream

KEPT = Path(__file__).with_name("rivals.json")
MODULES = ("forecasters", "river_models", "vowpal", "scikit", "capymoa_models", "same_network")
DISTRIBUTIONS = {"sklearn": "scikit-learn"}
"""Names of distributions that differ from the name of their package."""
UNSCORED_ROWS = {"classification": 0, "count": 0, "regression": 2}
"""The first rows of a regression are not scored: a learner cannot know the target's scale before."""
COMPARED = ("log_loss", "accuracy", "rmse", "mae", "rmedse")
Report = Callable[[str], None]
Record = dict[str, Any]


def attempts(stream: Stream) -> Iterator[tuple[str, Attempt]]:
    """Every rival whose package is installed, with its package."""
    for name in MODULES:
        module = importlib.import_module(f"benchmarks.streams.{name}")
        if importlib.util.find_spec(module.PACKAGE):
            for attempt in module.attempts(stream):
                yield module.PACKAGE, attempt


def run(stream: Stream, folder: Path, report: Report) -> int:
    """Score every setting that the folder does not have yet; returns how many it has then."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stream.name}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    if kept.get("digest") != stream.digest():
        kept = {"digest": stream.digest(), "rows": len(stream.targets), "records": []}
    done = {(record["method"], record["setting"]) for record in kept["records"]}
    for package, attempt in attempts(stream):
        if (attempt.method, attempt.setting) in done:
            continue
        record: Record = {"method": attempt.method, "setting": attempt.setting, "version": _version(package)}
        record |= _scored(stream, attempt)
        kept["records"].append(record)
        path.write_text(json.dumps(kept))
        shown = record.get("failed") or record["scores"]["log_loss"]
        report(f"{stream.name}: {attempt.method}, {attempt.setting}: {shown} ({record['seconds']} s)")
    return len(kept["records"])


def _scored(stream: Stream, attempt: Attempt) -> Record:
    began = time.perf_counter()
    try:
        found = {"scores": scores(attempt.run(), stream, UNSCORED_ROWS[stream.kind])}
    except (ArithmeticError, ValueError) as error:
        found = {"failed": f"{type(error).__name__}: {error}"}
    return {**found, "seconds": round(time.perf_counter() - began, 1)}


def _version(package: str) -> str:
    name = DISTRIBUTIONS.get(package, package)
    return f"{name} {importlib.metadata.version(name)}"


def condense(folder: Path) -> None:
    """Write `rivals.json`: of each method the settings that are best by some score, five digits of each figure.

    Streams that the folder does not have stay as they are.
    """
    before = kept() if KEPT.exists() else {"streams": {}, "versions": []}
    streams, versions = before["streams"], set(before["versions"])
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        methods: dict[str, list[Record]] = {}
        for record in found["records"]:
            versions.add(record["version"])
            if "scores" in record and all(map(math.isfinite, record["scores"].values())):
                methods.setdefault(record["method"], []).append(record)
        best = {method: _best_settings(records) for method, records in methods.items()}
        streams[path.stem] = {"digest": found["digest"], "rows": found["rows"], "methods": best}
    KEPT.write_text(_lines({"versions": sorted(versions), "streams": streams}))


def _best_settings(records: list[Record]) -> list[Record]:
    chosen = {}
    for score in COMPARED:
        if score in records[0]["scores"]:
            best = min(records, key=lambda record, score=score: _loss(score, record["scores"][score]))
            chosen[best["setting"]] = best
    return [
        {"setting": setting, "seconds": record["seconds"]}
        | {name: float(f"{value:.5g}") for name, value in record["scores"].items()}
        for setting, record in chosen.items()
    ]


def _loss(score: str, value: float) -> float:
    return -value if score in HIGHER_IS_BETTER else value


def _lines(kept: dict[str, Any]) -> str:
    """JSON with a line for each method, so that a change of one is a change of one line."""
    text = [f'{{"versions": {json.dumps(kept["versions"])},\n"streams": {{']
    for number, (name, stream) in enumerate(kept["streams"].items()):
        text.append(("," if number else "") + f'{json.dumps(name)}: {{"digest": {json.dumps(stream["digest"])},')
        text.append(f'"rows": {stream["rows"]}, "methods": {{')
        lines = [f"{json.dumps(method)}: {json.dumps(found)}" for method, found in stream["methods"].items()]
        text.append(",\n".join(lines) + "}}")
    return "\n".join(text) + "\n}}\n"


def kept() -> dict[str, Any]:
    """What `rivals.json` holds."""
    return json.loads(KEPT.read_text())


def best(name: str, score: str, prefix: str = "") -> Record | None:
    """The best rival on a stream by a score, among those whose name begins so: method, setting and scores."""
    methods = kept()["streams"].get(name, {"methods": {}})["methods"]
    records = [
        {"method": method, **record}
        for method, found in methods.items()
        for record in found
        if method.startswith(prefix) and score in record
    ]
    return min(records, key=lambda record: _loss(score, record[score]), default=None)
