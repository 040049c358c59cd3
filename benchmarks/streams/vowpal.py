"""Vowpal Wabbit, from files in its own format: one pass, its progressive predictions."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.streams.attempt import Attempt
from benchmarks.streams.laws import around, standardised, target_scale
from benchmarks.streams.scores import Forecast
from benchmarks.streams.stream import Stream

PACKAGE = "vowpalwabbit"
RATES = (0.5, 2.0, 0.1, 8.0)
LONG = 10_000
"""Above so many rows only the first two rates are run."""
WIDE = 40
"""Above so many inputs no interactions are formed."""
FEW = 15
"""Up to so many inputs interactions of three are formed too."""


def attempts(stream: Stream) -> Iterator[Attempt]:
    """Linear, with interactions of two and of three, and with hidden units; raw and standardised; four rates."""
    width = stream.inputs.shape[1]
    if not width:
        return
    models = {"linear": "", "--nn 10": "--nn 10"}
    if width <= WIDE:
        models |= {"-q ::": "-q ::"}
    if width <= FEW:
        models |= {"--cubic :::": "-q :: --cubic :::"}
    for scaled in (False, True):
        for name, options in models.items():
            for rate in RATES[:2] if len(stream.targets) > LONG else RATES:
                given = f"{_law(stream)} {options} -l {rate:g} -b 20"
                setting = f"{name}, rate {rate:g}, {'standardised' if scaled else 'raw'}"
                yield Attempt("Vowpal Wabbit", setting, lambda given=given, scaled=scaled: _run(stream, given, scaled))


def _law(stream: Stream) -> str:
    match stream.kind:
        case "classification" if stream.classes == 2:
            return "--loss_function logistic --link logistic"
        case "classification":
            return f"--loss_function logistic --oaa {stream.classes} --probabilities"
        case "count":
            return "--loss_function poisson --link poisson"
        case _:
            return "--loss_function squared"


def write(path: Path, inputs: np.ndarray, labels: np.ndarray) -> None:
    """Rows in Vowpal Wabbit's text format."""
    with path.open("w") as file:
        for row, label in zip(inputs.tolist(), labels.tolist(), strict=True):
            features = " ".join(f"x{at}:{value:.7g}" for at, value in enumerate(row) if value)
            file.write(f"{label:.9g} | {features}\n")


def _run(stream: Stream, options: str, scaled: bool) -> Forecast:
    from vowpalwabbit import Workspace

    centre, spread = target_scale(stream)
    labels = (stream.targets - centre) / spread
    if stream.kind == "classification":
        labels = 2 * stream.targets - 1 if stream.classes == 2 else stream.targets + 1
    with tempfile.TemporaryDirectory() as folder:
        data, said = Path(folder) / "rows.txt", Path(folder) / "said.txt"
        write(data, standardised(stream.inputs) if scaled else stream.inputs, labels)
        Workspace(arg_list=[*options.split(), "--quiet", "-d", os.fspath(data), "-p", os.fspath(said)]).finish()
        lines = said.read_text().splitlines()
    if stream.kind != "classification":
        return around(centre + spread * np.array(lines, float), stream)
    if stream.classes == 2:
        second = np.array(lines, float)
        return around(np.column_stack([1 - second, second]), stream)
    return around(np.array([[float(part.split(":")[1]) for part in line.split()] for line in lines]), stream)
