"""Every two options of `natkal learn` together, on 300 rows: by the command, `nk.learn`, and a server that goes on.

A pair may be refused with a sentence. Otherwise command and `nk.learn` predict the same, the server answers, and
neither option is ignored: without it, something of the run is otherwise. `make soak` runs all pairs, `make test` a few.
"""

import inspect
import json
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import natkal as nk
from tests.app.serve.support import make_client
from tests.changing.doors import Refused, Row, as_flags, natkal, own_errors, read_told, serve_learned
from tests.changing.machine import check

pytestmark = [pytest.mark.float64, pytest.mark.filterwarnings("default")]

OPTIONS: dict[str, dict[str, Any]] = {
    "target": {"target": ["y", "z"]},
    "task": {"task": "positive"},
    "features": {"features": "-b"},
    "classes": {"target": ["z"], "classes": ["high", "low", "never"]},
    "missing": {"missing": "reject"},
    "encoding": {"encoding": "cp1252"},
    "decimal": {"decimal": "."},
    "sample": {"sample": 60},
    "key": {"key": "k"},
    "pool": {"key": "k", "pool": True},
    "sequence": {"sequence": "k", "model": "gru:2"},
    "id": {"id": "i"},
    "label_delay": {"label_delay": 5},
    "model": {"model": "mlp:4"},
    "past": {"past": "1,3"},
    "budget": {"learner": "auto", "model": "auto", "budget": "fast"},
    "memory": {"learner": "auto", "model": "mlp:4", "memory": "30kB"},
    "learner": {"learner": "auto", "model": "linear"},
    "prior_scale": {"prior_scale": 0.1},
    "fading": {"fading": 0.01},
    "seed": {"seed": 3},
    "horizon": {"horizon": 2},
    "level": {"level": 0.5},
    "rejects": {"rejects": "rejects.jsonl"},
    "metrics": {"metrics": "metrics.csv"},
    "metrics_every": {"metrics_every": 50},
    "checkpoint_every": {"checkpoint_every": "100"},
    "max_rejects": {"max_rejects": 3},
}
"""One line for a new option."""
ELSEWHERE = {"label_topic", "until_end", "group", "transactions", "kafka_config", "ray", "run", "overwrite", "progress"}
"""Options that need a broker, a cluster or a second run, and those that every run here has."""
ALWAYS = {"always"}
UNSEEN: dict[str, set[str]] = {
    "encoding": ALWAYS,
    "decimal": ALWAYS,
    "sample": ALWAYS,
    "checkpoint_every": ALWAYS,
    "max_rejects": ALWAYS,
    "seed": OPTIONS.keys() - {"model", "sequence"},  # nothing else has random weights
    "level": {"classes"},  # intervals are of numbers
    "budget": {"learner"},  # linear models are few
}
"""Options that leave no trace on a table like this one: never, or not beside these."""
BASE: dict[str, Any] = {"target": ["y"], "learner": "single", "model": "linear", "sample": 100}
FEW = [("key", "label_delay"), ("target", "level"), ("id", "seed"), ("missing", "metrics_every"), ("past", "horizon")]
REFUSED = "refused with a sentence"
PAIRS = list(combinations(OPTIONS, 2))


def test_every_option_is_here() -> None:
    assert OPTIONS.keys() | ELSEWHERE | {"predictions"} == inspect.signature(nk.learn).parameters.keys() - {"data"}


def rows() -> list[Row]:
    """Numbers, a word, a key and an id; some cells are missing, one target is no number."""
    rng = np.random.default_rng(3)
    found = []
    for number in range(300):
        a, b, noise = rng.normal(size=3).round(3).tolist()
        row: Row = {
            "a": a,
            "b": b,
            "c": "xyz"[int(rng.integers(3))],
            "k": f"key {number * 7 % 3}",
            "i": f"row {number}",
        }
        row |= {"y": round(float(np.exp(0.4 * a - 0.2 * b + 0.1 * noise)), 4), "z": "high" if a + noise > 0 else "low"}
        row |= {"b": None} if number % 50 == 49 else {"c": None} if number % 70 == 69 else {}
        found.append(row)
    found[200]["y"] = "no number"
    return found


TABLE = rows()
KNOWN: dict[str, Any] = {}
"""What was seen of runs of `nk.learn`, by their options."""


def given(*names: str) -> dict[str, Any]:
    """The options of these names; one linear filter learns unless they say otherwise."""
    options = dict(BASE)
    for name in names:
        options |= OPTIONS[name]
    return options


def learned(folder: Path, options: dict[str, Any], *, command: bool) -> Any:
    """What there is to see of a run."""
    folder.mkdir(parents=True)
    data = folder / "d.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in TABLE))
    options = options | {"predictions": "p.jsonl"}
    options |= {name: str(folder / options[name]) for name in ("predictions", "rejects", "metrics") if name in options}
    if command:
        natkal("learn", str(data), *as_flags(joined(options)), "--run", str(folder / "run"), "--no-report", "--json")
    else:
        with own_errors():
            nk.learn(TABLE, **options, run=folder / "run", progress=False)
    run = nk.load_run(folder / "run")
    told = [json.loads(line) for line in (folder / "p.jsonl").read_text().splitlines()]
    check([read_told(row) for row in told])
    files = sorted({str(path.relative_to(folder)) for path in folder.rglob("*.*")} - {"run/checkpoint.previous.nk"})
    windows = len(next(iter(run.history.values())))
    return {"told": told, "rows": run.rows, "features": run.features, "files": files, "windows": windows} | {
        "metrics": sorted(run.metrics)
    }


def known(folder: Path, options: dict[str, Any]) -> Any:
    """The outcome of `nk.learn`, kept."""
    key = json.dumps(options, sort_keys=True)
    if key not in KNOWN:
        KNOWN[key] = outcome(folder, options, command=False)
    return KNOWN[key]


def outcome(folder: Path, options: dict[str, Any], *, command: bool) -> Any:
    """The same, or that it was refused."""
    try:
        return learned(folder, options, command=command)
    except Refused:
        return REFUSED


def joined(options: dict[str, Any]) -> dict[str, Any]:
    """Lists with commas, as the command has them."""
    return {name: ",".join(value) if name == "classes" else value for name, value in options.items()}


def served(folder: Path) -> None:
    """The run goes on behind HTTP: what it is given is learned or refused, never an error of the server."""
    service = serve_learned(folder / "run")
    try:
        client = make_client(service)
        for row in TABLE[:3]:
            answer = client.post("/predict_learn", json=row)
            assert answer.status_code in (200, 422), answer.text
        assert client.get("/readyz").json()["ready"]
    finally:
        service.close()


@pytest.mark.parametrize(
    ("first", "second"), [pytest.param(*pair, marks=[] if pair in FEW else [pytest.mark.slow]) for pair in PAIRS]
)
def test_two_options(first: str, second: str, tmp_path: Path) -> None:
    options = given(first, second)
    mine, its = (outcome(tmp_path / name, options, command=name == "command") for name in ("command", "memory"))
    assert mine == its
    if mine == REFUSED:
        return
    for name, other in ((first, second), (second, first)):
        unseen = UNSEEN.get(name, set())
        if unseen != ALWAYS and other not in unseen:
            without = {key: value for key, value in options.items() if key != name}
            without |= {key: value for key, value in BASE.items() if key == name}
            assert its != known(tmp_path / name, without), f"--{name} changes nothing beside --{other}"
    with suppress(Refused):
        served(tmp_path / "command")
