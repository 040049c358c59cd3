"""CapyMOA's ensembles, which run in a Java virtual machine (Java 17)."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.streams.attempt import Attempt
from benchmarks.streams.laws import around
from benchmarks.streams.scores import Forecast
from benchmarks.streams.stream import Stream

PACKAGE = "capymoa"
WIDE = 100
"""Above so many inputs nothing is run."""
LONG = 5_000
"""Above so many rows a forest has 30 trees and SOKNL is left out, below a forest is also tried with 100."""
BOOSTED_CLASSES = 4
"""Above so many classes boosting is left out: it keeps 100 trees for each class."""


def attempts(stream: Stream) -> Iterator[Attempt]:
    """Forests, random patches, bagging and boosted trees; for numbers also neighbours."""
    if not 0 < stream.inputs.shape[1] <= WIDE or stream.kind == "count":
        return
    for method, setting, make in _classifiers(stream) if stream.classes else _regressors(stream):
        yield Attempt(f"CapyMOA {method}", setting, lambda make=make: _run(make, stream))


def _classifiers(stream: Stream) -> Iterator[tuple[str, str, Callable[[Any], Any]]]:
    from capymoa import classifier  # pyright: ignore[reportMissingImports]

    for size in (30, 100) if len(stream.targets) <= LONG else (30,):
        yield "ARF", f"{size} trees", lambda s, n=size: classifier.AdaptiveRandomForestClassifier(s, ensemble_size=n)
    yield "SRP", "30 trees", lambda s: classifier.StreamingRandomPatches(s, ensemble_size=30)
    if stream.classes <= BOOSTED_CLASSES:
        yield "SGBT", "100 trees", lambda s: classifier.StreamingGradientBoostedTrees(s)
    yield "leveraging bagging", "30 trees", lambda s: classifier.LeveragingBagging(s, ensemble_size=30)


def _regressors(stream: Stream) -> Iterator[tuple[str, str, Callable[[Any], Any]]]:
    from capymoa import regressor  # pyright: ignore[reportMissingImports]

    for size in (30, 100) if len(stream.targets) <= LONG else (30,):
        yield "ARF", f"{size} trees", lambda s, n=size: regressor.AdaptiveRandomForestRegressor(s, ensemble_size=n)
    if len(stream.targets) <= LONG:
        yield "SOKNL", "100 trees", lambda s: regressor.SOKNL(s)
    yield "FIMT-DD", "defaults", lambda s: regressor.FIMTDD(s)
    yield "ORTO", "defaults", lambda s: regressor.ORTO(s)
    for count in (5, 20):
        yield "kNN", f"k {count}", lambda s, k=count: regressor.KNNRegressor(s, k=k)


def _run(make: Callable[[Any], Any], stream: Stream) -> Forecast:
    """Each row predicted, then learned."""
    from capymoa.stream import NumpyStream  # pyright: ignore[reportMissingImports]

    classes = stream.classes
    kind = "categorical" if classes else "numeric"
    rows = NumpyStream(stream.inputs, stream.targets, target_type=kind)
    model = make(rows.get_schema())
    said = np.zeros((len(stream.targets), classes)) if classes else np.zeros(len(stream.targets))
    for number in range(len(said)):
        instance = rows.next_instance()
        if classes:
            votes = model.predict_proba(instance)
            if votes is not None:
                said[number, : len(votes)] = np.maximum(votes, 0.0)[:classes]
        else:
            guess = model.predict(instance)
            said[number] = guess if guess is not None else 0.0
        model.train(instance)
    return around(said, stream)
