"""Small runs inside the test process: one compiled loop serves most of them."""

from pathlib import Path

import numpy as np

from natkal.reading.source import Source
from natkal.runs import checkpoint
from natkal.runs.session import Session
from natkal.settings.settings import Settings

COLUMNS = "a,b,c,y"


def table(rows: int, seed: int = 0) -> np.ndarray:
    """Three features on three scales and a yes-or-no target."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(rows, 3)) * [1.0, 30.0, 0.01] + [0.0, 100.0, 1.0]
    score = inputs @ [1.0, 0.05, -100.0] - 5.0 + 100.0
    return np.column_stack([inputs, (score + rng.logistic(size=rows) > 0).astype(float)])


def csv_lines(values: np.ndarray) -> list[str]:
    return [",".join([*(repr(float(value)) for value in row[:-1]), str(int(row[-1]))]) for row in values]


def csv_text(values: np.ndarray) -> str:
    return "\n".join([COLUMNS, *csv_lines(values)]) + "\n"


def settings(**changes) -> Settings:
    return Settings(**{"targets": ("y",), "learner": "single", "model": "linear", "sample": 50, **changes})


def learn(folder: Path, files: list[Path] | Path, *, stop=None, **changes) -> Session:
    """Begin a run and take it to its end (or to where `stop` says so)."""
    folder.mkdir(exist_ok=True)
    names = [str(name) for name in (files if isinstance(files, list) else [files])]
    source = Source(names)
    session, first = Session.begin(folder, settings(**changes), source)
    session.run(source, first, **({"stop": stop} if stop else {}))
    return session


def resume(folder: Path, files: list[Path] | Path, **options) -> Session:
    names = [str(name) for name in (files if isinstance(files, list) else [files])]
    session, _ = Session.resume(folder)
    session.run(Source(names, session.position), [], **options)
    return session


def arrays(folder: Path) -> dict[str, np.ndarray]:
    return checkpoint.read(folder / checkpoint.CURRENT)[1]


def same_arrays(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return left.keys() == right.keys() and all(left[name].tobytes() == right[name].tobytes() for name in left)


def learned(folder: Path) -> dict[str, np.ndarray]:
    """What was learned, without the bookkeeping of windows."""
    found = {name: value for name, value in arrays(folder).items() if name.startswith(".learner")}
    assert found
    return found
