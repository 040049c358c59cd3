"""scikit-learn's SGD and MLP by `partial_fit` on one row at a time, inputs standardised in hindsight."""

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.streams.attempt import Attempt
from benchmarks.streams.laws import around, standardised, target_scale
from benchmarks.streams.scores import Forecast
from benchmarks.streams.stream import Stream

PACKAGE = "sklearn"
SGD_RATES = (1e-2, 0.1)
MLP_RATES = (1e-3, 5e-3)
UNITS = (20, 100)
LONG = 10_000
"""Above so many rows only the larger network and the first of the rates are run."""


def attempts(stream: Stream) -> Iterator[Attempt]:
    """Linear models and networks with one hidden layer, over their rates."""
    if not stream.inputs.shape[1]:
        return
    classes = stream.kind == "classification"
    long = len(stream.targets) > LONG
    for method, setting, make in _classifiers(long) if classes else _regressors(long):
        yield Attempt(f"scikit-learn {method}", setting, lambda make=make: _run(make(), stream))


def _classifiers(long: bool) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    from sklearn.linear_model import SGDClassifier
    from sklearn.neural_network import MLPClassifier

    for rate in SGD_RATES[: 1 if long else None]:
        given = {"loss": "log_loss", "learning_rate": "constant", "eta0": rate, "random_state": 0}
        yield "SGD", f"rate {rate:g}", lambda given=given: SGDClassifier(**given)
    yield "SGD", "optimal", lambda: SGDClassifier(loss="log_loss", random_state=0)
    for units, rate in _networks(long):
        network = {"hidden_layer_sizes": (units,), "learning_rate_init": rate, "batch_size": 1, "random_state": 0}
        yield "MLP", f"{units} units, Adam {rate:g}", lambda network=network: MLPClassifier(**network)


def _regressors(long: bool) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    from sklearn.linear_model import SGDRegressor
    from sklearn.neural_network import MLPRegressor

    for loss, rate in itertools.product(("squared_error", "huber"), SGD_RATES[: 1 if long else None]):
        given = {"loss": loss, "learning_rate": "constant", "eta0": rate, "random_state": 0}
        yield "SGD", f"{loss}, rate {rate:g}", lambda given=given: SGDRegressor(**given)
    for units, rate in _networks(long):
        network = {"hidden_layer_sizes": (units,), "learning_rate_init": rate, "batch_size": 1, "random_state": 0}
        yield "MLP", f"{units} units, Adam {rate:g}", lambda network=network: MLPRegressor(**network)


def _networks(long: bool) -> Iterator[tuple[int, float]]:
    """Hidden units and rate."""
    return itertools.product(UNITS[1:], MLP_RATES[:1]) if long else itertools.product(UNITS, MLP_RATES)


def _run(model: Any, stream: Stream) -> Forecast:
    """Each row predicted, then learned; nothing is known before the first."""
    from sklearn import config_context

    inputs = standardised(stream.inputs)
    classes = np.arange(stream.classes)
    centre, spread = target_scale(stream)
    targets = stream.targets if stream.classes else (stream.targets - centre) / spread
    said = np.zeros((len(inputs), stream.classes)) if stream.classes else np.full(len(inputs), centre)
    with warnings.catch_warnings(), config_context(assume_finite=True, skip_parameter_validation=True):
        warnings.simplefilter("ignore")
        for number in range(len(inputs)):
            row, target = inputs[number : number + 1], targets[number : number + 1]
            if stream.classes:
                if number:
                    said[number] = model.predict_proba(row)[0]
                model.partial_fit(row, target, classes=classes)
            else:
                if number:
                    said[number] = centre + spread * model.predict(row)[0]
                model.partial_fit(row, target)
    return around(said, stream)
