"""What the river estimators share: features that come and go, one buffer, and the machine."""

import math
import numbers
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pandas as pd

from natkal.integrations.growth import grown
from natkal.integrations.laws import Law
from natkal.integrations.learners import LEARNERS, make_plan
from natkal.integrations.machine import Machine, make_machine

MISSING = float("nan")
TOGETHER = 256
"""Rows that may wait before they are learned: nobody can tell, since every question is answered after they are."""


class Slots:
    """A growing learner on dictionaries: which feature has which column, and the buffer of the machine."""

    def __init__(self, law: Law, hidden: tuple[int, ...], standardize: bool, learner: str, start: dict[str, Any]):
        self.law = law
        self.hidden = hidden
        self.standardize = standardize
        self.learner = learner
        self.start = start
        self.columns: dict[Any, int] = {}
        self.names: tuple[Any, ...] = ()
        self.buffer: Any = None
        self.machine: Machine | None = None
        self.outputs = 1
        self.fan_in = 0
        self.waiting: list[np.ndarray] = []

    def welcome(self, features: Any, law: Law | None = None, outputs: int = 1) -> Machine:
        """Room for these features, and for so many outputs of this law; what is new starts from the prior."""
        self.settle()
        law = self.law if law is None else law
        outputs = max(outputs, self.outputs)
        before = len(self.columns)
        for name in features:
            self.columns.setdefault(name, len(self.columns))
        used = max(len(self.columns), 1)
        # The first row's number of features sets the prior of all: it does not matter when a feature came.
        self.fan_in = self.fan_in or used
        width = len(self.names)
        if used > width:
            width = max(used, 2 * width)
        machine = make_machine(make_plan(law, width, self.hidden, self.standardize, self.learner))
        fresh = machine.start(features=used, outputs=outputs, fan_in=self.fan_in, **self.start)
        if self.machine is not None:
            fresh = grown(self.machine, np.asarray(self.buffer), machine, fresh, features=before, outputs=self.outputs)
        self.buffer, self.law, self.machine, self.outputs = fresh, law, machine, outputs
        self.names = (*self.columns, *(_Free() for _ in range(machine.plan.columns - len(self.columns))))
        return machine

    def row(self, x: Mapping[Any, Any], target: float, weight: float, known: int) -> np.ndarray:
        """A dictionary as a row: absent features are missing."""
        try:
            return np.array([*map(x.get, self.names), target, weight, known], np.float64)
        except (TypeError, ValueError) as error:
            raise _explained(x) from error

    def rows(self, X: pd.DataFrame, target: Any, weight: Any, known: Any) -> np.ndarray:
        """A frame as rows; columns without a feature of that name are ignored."""
        assert self.machine is not None
        width, count = len(self.names), len(X)
        rows = self.machine.blank(count)
        for name in X.columns:
            if name in self.columns:
                try:
                    rows[:count, self.columns[name]] = X[name].to_numpy(np.float64, na_value=np.nan)
                except (TypeError, ValueError) as error:
                    raise _explained(dict(X[[name]].iloc[0])) from error
        rows[:count, width], rows[:count, width + 1], rows[:count, width + 2] = target, weight, known
        return rows

    def learn_row(self, x: Mapping[Any, Any], target: float, weight: float, known: int) -> None:
        """One row; it is checked now, and learned when somebody asks or enough of them have come."""
        if not 0 <= weight < math.inf:
            raise ValueError(f"w: must be finite and at least 0, got {weight}")
        if self.machine is None or not self.columns.keys() >= x.keys():
            self.welcome(x)
        self.waiting.append(self.row(x, target, weight, known))
        if len(self.waiting) == TOGETHER:
            self.settle()

    def learn_rows(self, X: pd.DataFrame, target: np.ndarray, weight: float, known: int) -> None:
        """The rows of a frame, in order."""
        if not 0 <= weight < math.inf:
            raise ValueError(f"w: must be finite and at least 0, got {weight}")
        if len(X) != len(target):
            raise ValueError(f"y: {len(target)} targets for {len(X)} rows")
        if self.machine is None or not self.columns.keys() >= set(X.columns):
            self.welcome(X.columns)
        self.settle()
        assert self.machine is not None
        self.buffer = self.machine.learn(np.asarray(self.buffer), self.rows(X, target, weight, known), len(X))

    def settle(self) -> None:
        """Learn all rows that wait."""
        if self.waiting:
            assert self.machine is not None
            count = len(self.waiting)
            rows = self.machine.blank(count)
            rows[:count] = self.waiting
            self.buffer = self.machine.learn(np.asarray(self.buffer), rows, count)
            self.waiting = []

    def predict_row(self, x: Mapping[Any, Any], known: int) -> np.ndarray | None:
        """The law's summary; None before anything was learned."""
        if self.machine is None:
            return None
        row = self.row(x, MISSING, 0.0, known)
        learned = row  # its weight is 0
        if len(self.waiting) == 1:  # learn, predict, learn, predict: one call for both
            learned = self.waiting.pop()
        self.settle()
        with jax.enable_x64(True):
            self.buffer, summary = self.machine.learn_and_predict_row(self.buffer, np.concatenate((learned, row)))
        return np.asarray(summary)

    def predict_rows(self, X: pd.DataFrame, known: int) -> np.ndarray | None:
        """The law's summaries; None before anything was learned."""
        if self.machine is None:
            return None
        self.settle()
        return self.machine.predict(np.asarray(self.buffer), self.rows(X, MISSING, 0.0, known), len(X))

    def __getstate__(self) -> dict[str, Any]:
        """The buffer as NumPy, the machine as its plan: what can be copied and pickled."""
        self.settle()
        state = dict(self.__dict__)
        state["buffer"] = None if self.buffer is None else np.array(self.buffer)
        state["machine"] = None if self.machine is None else self.machine.plan
        state["names"] = len(self.names)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        free = state["names"] - len(state["columns"])
        self.__dict__.update(state)
        self.names = (*self.columns, *(_Free() for _ in range(free)))
        self.machine = None if state["machine"] is None else make_machine(state["machine"])


class _Free:
    """A column without a feature: a key that no dictionary has."""


def check_options(hidden: tuple[int, ...], learner: str, prior_scale: float, fading: float) -> None:
    """Refuse what no learner can be built from."""
    if learner not in LEARNERS:
        raise ValueError(f"learner: must be one of {', '.join(map(repr, LEARNERS))}, got {learner!r}")
    if not all(isinstance(size, numbers.Integral) and size > 0 for size in hidden):
        raise ValueError(f"hidden_layer_sizes: must be a tuple of positive whole numbers, got {hidden!r}")
    if not 0 < prior_scale < np.inf:
        raise ValueError(f"prior_scale: must be positive and finite, got {prior_scale!r}")
    if not 0 <= fading < 1:
        raise ValueError(f"fading: must lie in [0, 1), got {fading!r}")


def _explained(x: Mapping[Any, Any]) -> Exception:
    for name, value in x.items():
        try:
            float(np.nan if value is None else value)
        except (TypeError, ValueError):
            return TypeError(f"feature {name!r} is {value!r}, not a number; encode it first (OneHotEncoder)")
    return TypeError("every feature must be a number")
