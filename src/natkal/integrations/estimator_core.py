"""The parts that scikit-learn's and river's estimators share: options by their names, and a learner that can be copied.

Every choice and all arithmetic is in `natkal.tables`.
"""

import numbers
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from natkal.compiling.float64 import float64
from natkal.errors import StreamError
from natkal.settings.options import Options, make_options
from natkal.storage.parts import Stored
from natkal.stream.live import linger
from natkal.tables.engine.batch import Predictions, TableBatch, TargetPrediction
from natkal.tables.table import TableLearner


def options_of(estimator: Any, seed: int, *, forget: bool = True) -> Options:
    """The options that the estimator's parameters spell, checked; `forget`: whether the rows have an order in time."""
    try:
        return make_options(
            learner=estimator.learner,
            model=_model(estimator.hidden_layer_sizes, estimator.model),
            prior_scale=_number("prior_scale", estimator.prior_scale),
            fading=_number("fading", estimator.fading),
            seed=seed,
            past=estimator.past,
            budget=str(estimator.budget),
            memory=estimator.memory,
            standardize=bool(estimator.standardize),
            forget=forget,
        )
    except StreamError as error:
        raise ValueError(str(error)) from error


def _model(hidden_layer_sizes: Any, model: str) -> str:
    """The name of a network with these hidden layers; `model` itself where none are given."""
    if hidden_layer_sizes is None:
        return model
    if model != "auto":
        raise ValueError(f"hidden_layer_sizes: leave it out where model={model!r} says it all")
    sizes = np.atleast_1d(np.asarray(hidden_layer_sizes)).tolist()
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise ValueError(
            f"hidden_layer_sizes: must be a tuple of positive whole numbers, or None, got {hidden_layer_sizes!r}"
        )
    return "mlp:" + ",".join(map(str, sizes)) if sizes else "linear"


def _number(name: str, value: Any) -> float | None:
    if value is None or isinstance(value, numbers.Real):
        return None if value is None else float(value)
    raise ValueError(f"{name}: must be a number or None, got {value!r}")


class PortableLearner(TableLearner):
    """A table learner that is copied and pickled as plain dictionaries and NumPy arrays."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.options, self.header(), self.arrays())

    def predict_rows(self, rows: TableBatch, level: float | None = None) -> TargetPrediction:
        """The predictions for some rows. A model with memory takes them as what comes next, and forgets them."""
        before = self.state
        told = self.predict(rows, level=level)
        self.state = before
        return told.targets[0]

    @float64
    def predict_row(self, learned: TableBatch | None, asked: TableBatch) -> TargetPrediction:
        """The prediction for one row, after one more row was learned where one is given: one call for both."""
        told: Predictions
        if learned is None:
            told = self.loop.predict_row(self.state, self._only(asked))
        else:
            self.state, told = self.loop.learn_then_predict(self.state, self._only(learned), self._only(asked))
        linger(told.weights)
        return jax.tree.map(np.asarray, told.targets[0])

    def _only(self, rows: TableBatch) -> Any:
        """The only row of these."""
        return jax.tree.map(lambda leaf: leaf[0], self.loop.arranged(rows))


def _rebuilt(options: Options, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> PortableLearner:
    learner = PortableLearner.from_header(options, header, keyed=False, limits=False)
    learner.restore(Stored(header, arrays))
    return learner
