"""One stream: the columns of a table and its target, as a file holds them and as numbers."""

import dataclasses
import functools
import hashlib
from pathlib import Path
from typing import Any, Literal

import numpy as np

Kind = Literal["classification", "regression", "count"]
Columns = dict[str, np.ndarray]
TARGET = "y"


@dataclasses.dataclass(frozen=True, eq=False)
class Stream:
    """A table in its order: columns by name (numbers or words), targets (n,), and what the benchmarks need to know.

    Targets of a classification are numbers from 0 on; `labels` are the words for them where the source has words.
    `hidden` are the hidden layers of the network that `learning` uses. `drifts` are the rows at which the law changes.
    `period` is the season of a series in rows, 0 where there is none.
    """

    name: str
    kind: Kind
    columns: Columns
    targets: np.ndarray
    hidden: tuple[int, ...] = (10,)
    drifts: tuple[int, ...] = ()
    period: int = 0
    labels: tuple[str, ...] = ()

    @functools.cached_property
    def inputs(self) -> np.ndarray:
        """(n, d) as float64: a column of words becomes one column of 0 and 1 for each word."""
        columns = []
        for values in self.columns.values():
            if values.dtype.kind == "U":
                columns += [(values == word).astype(float) for word in np.unique(values)]
            else:
                columns.append(values.astype(float))
        return np.array(columns).T if columns else np.zeros((len(self.targets), 0))

    @property
    def classes(self) -> int:
        """The number of classes, 0 where there are none."""
        return int(self.targets.max()) + 1 if self.kind == "classification" else 0

    @property
    def family(self) -> Any:
        """The law of the target with its dispersion left at 1 (Gaussian variance, negative binomial r)."""
        from natkal.families import Bernoulli, Categorical, Gaussian, NegativeBinomial

        match self.kind:
            case "classification":
                return Bernoulli() if self.classes == 2 else Categorical(self.classes, minimal=False)
            case "regression":
                return Gaussian(1.0)
            case _:
                return NegativeBinomial(1.0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Layer sizes of the network, input first."""
        return self.inputs.shape[1], *self.hidden, self.classes if self.classes > 2 else 1

    def head(self, rows: int) -> "Stream":
        """The first rows, without their drifts."""
        columns = {name: values[:rows] for name, values in self.columns.items()}
        return dataclasses.replace(self, columns=columns, targets=self.targets[:rows], drifts=())

    def digest(self) -> str:
        """Twelve hexadecimal digits that change with the rows: figures of other rows must not be compared."""
        taken = hashlib.sha256(np.ascontiguousarray(self.inputs).tobytes())
        taken.update(np.asarray(self.targets, float).tobytes())
        return taken.hexdigest()[:12]

    def write(self, path: Path) -> None:
        """The table as CSV, the target last; numbers with all their digits, a missing value as an empty field."""
        targets = np.array(self.labels)[self.targets] if self.labels else self.targets
        with path.open("w") as file:
            file.write(",".join([*self.columns, TARGET]) + "\n")
            for row in zip(*(values.tolist() for values in (*self.columns.values(), targets)), strict=True):
                file.write(",".join("" if value != value else str(value) for value in row) + "\n")  # NaN is not itself


def numbered(inputs: Any) -> Columns:
    """Columns x0, x1, ... of a matrix; whole numbers stay whole in the file."""
    values = np.asarray(inputs)
    whole = bool(
        np.isfinite(values).all() and np.array_equal(values, np.round(values)) and np.abs(values).max() < 2**53
    )
    return {f"x{at}": column for at, column in enumerate((values.astype(np.int64) if whole else values).T)}


def of_rows(rows: Any) -> tuple[Columns, list[Any]]:
    """Columns and targets of river's rows, (dictionary, target) each; numbered columns are called x0, x1, ..."""
    given = list(rows)
    names = {name: f"x{name}" if isinstance(name, int) else str(name) for name in given[0][0]}
    columns = {text: np.array([row[name] for row, _ in given]) for name, text in names.items()}
    return columns, [target for _, target in given]
