"""river's models, row by row. A regression's targets are standardised over the whole stream, as for every rival."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.streams.attempt import Attempt
from benchmarks.streams.laws import around, target_scale
from benchmarks.streams.scores import Forecast
from benchmarks.streams.stream import Stream

PACKAGE = "river"
RATES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)
WIDE = 100
"""Above so many inputs only linear models run: trees and neighbours would take hours."""
LONG = 5_000
"""Above so many rows an ensemble has 10 models and not also 30, and the extremely fast tree is left out."""
LARGE = 100_000
"""Above so many numbers in the table SRP and leveraging bagging are left to CapyMOA, whose are quicker."""
NEIGHBOURS = (5, 20)
WINDOW = 1000


def attempts(stream: Stream) -> Iterator[Attempt]:
    """Every model and setting for the stream's kind of target; a series has no inputs, so there is none."""
    if not stream.inputs.shape[1]:
        return
    made = {"classification": _classifiers, "regression": _regressors, "count": _count_models}[stream.kind]
    for method, setting, make in made(stream):
        yield Attempt(f"river {method}", setting, lambda make=make: _run(make(), stream))


def _scaled(model: Any) -> Any:
    from river import preprocessing

    return preprocessing.StandardScaler() | model


def _sizes(stream: Stream) -> tuple[int, ...]:
    return (10, 30) if len(stream.targets) <= LONG else (10,)


def _classifiers(stream: Stream) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    from river import ensemble, forest, linear_model, multiclass, naive_bayes, neighbors, optim, tree

    two, trees = stream.classes == 2, tree.HoeffdingTreeClassifier
    for rate in RATES:
        if two:
            for rule in (optim.SGD, optim.Adam):
                setting = f"{rule.__name__} {rate:g}"
                yield (
                    "logistic regression",
                    setting,
                    lambda rule=rule, rate=rate: _scaled(linear_model.LogisticRegression(rule(rate))),
                )
        else:
            yield (
                "logistic regression",
                f"softmax, SGD {rate:g}",
                lambda rate=rate: _scaled(linear_model.SoftmaxRegression(optim.SGD(rate))),
            )
    for margin in (1.0, 10.0):
        alma = linear_model.ALMAClassifier(C=margin)
        one = alma if two else multiclass.OneVsRestClassifier(alma)
        yield "ALMA", f"C {margin:g}", lambda one=one: _scaled(one)
    if stream.inputs.shape[1] > WIDE:
        return
    yield "naive Bayes", "Gaussian", naive_bayes.GaussianNB
    for setting, model in (
        ("Hoeffding", trees()),
        ("adaptive", tree.HoeffdingAdaptiveTreeClassifier(seed=0)),
        ("extremely fast", tree.ExtremelyFastDecisionTreeClassifier()),
    ):
        if setting != "extremely fast" or len(stream.targets) <= LONG:
            yield "Hoeffding tree", setting, lambda model=model: model
    for size in _sizes(stream):
        yield "ARF", f"{size} trees", lambda size=size: forest.ARFClassifier(n_models=size, seed=0)
        yield "AMF", f"{size} trees", lambda size=size: forest.AMFClassifier(n_estimators=size, seed=0)
    if stream.inputs.size <= LARGE:
        bagging = ensemble.LeveragingBaggingClassifier
        yield "SRP", "10 trees", lambda: ensemble.SRPClassifier(trees(), n_models=10, seed=0)
        yield "leveraging bagging", "10 trees", lambda: bagging(trees(), n_models=10, seed=0)
    for count in NEIGHBOURS:
        engine = neighbors.LazySearch(window_size=WINDOW)
        yield "kNN", f"k {count}", lambda c=count, e=engine: _scaled(neighbors.KNNClassifier(n_neighbors=c, engine=e))


def _regressors(stream: Stream) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    from river import ensemble, linear_model, optim, tree

    for rate in RATES:
        for rule in (optim.SGD, optim.Adam):
            for loss in (optim.losses.Squared, optim.losses.Huber):
                setting = f"{rule.__name__} {rate:g}, {loss.__name__} loss"
                yield (
                    "linear regression",
                    setting,
                    lambda rule=rule, rate=rate, loss=loss: _scaled(
                        linear_model.LinearRegression(rule(rate), loss=loss())
                    ),
                )
    yield from _number_models(stream)
    yield (
        "SRP",
        "10 trees",
        lambda: _scaled(ensemble.SRPRegressor(tree.HoeffdingTreeRegressor(), n_models=10, seed=0)),
    )


def _number_models(stream: Stream) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Models of numbers that also serve for counts."""
    from river import forest, linear_model, neighbors, tree

    for smoothing in (None, 0.99, 0.95):
        yield (
            "Bayesian linear regression",
            f"smoothing {smoothing}",
            lambda smoothing=smoothing: _scaled(linear_model.BayesianLinearRegression(smoothing=smoothing)),
        )
    yield "Hoeffding tree", "Hoeffding", lambda: _scaled(tree.HoeffdingTreeRegressor())
    yield "Hoeffding tree", "adaptive", lambda: _scaled(tree.HoeffdingAdaptiveTreeRegressor(seed=0))
    for size in _sizes(stream):
        yield "ARF", f"{size} trees", lambda size=size: _scaled(forest.ARFRegressor(n_models=size, seed=0))
        yield "AMF", f"{size} trees", lambda size=size: _scaled(forest.AMFRegressor(n_estimators=size, seed=0))
    for count in NEIGHBOURS:
        engine = neighbors.LazySearch(window_size=WINDOW)
        yield "kNN", f"k {count}", lambda c=count, e=engine: _scaled(neighbors.KNNRegressor(n_neighbors=c, engine=e))


def _count_models(stream: Stream) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    from river import linear_model, optim

    for rate in RATES:
        yield (
            "Poisson regression",
            f"SGD {rate:g}",
            lambda rate=rate: _scaled(
                linear_model.LinearRegression(optim.SGD(rate), loss=optim.losses.Poisson(), intercept_lr=rate)
            ),
        )
    yield from _number_models(stream)


def _run(model: Any, stream: Stream) -> Forecast:
    """Each row predicted, then learned."""
    columns = [str(number) for number in range(stream.inputs.shape[1])]
    rows = [dict(zip(columns, values, strict=True)) for values in stream.inputs.tolist()]
    targets = stream.targets.tolist()
    if stream.kind == "classification":
        probs = np.zeros((len(rows), stream.classes))
        for number, (x, y) in enumerate(zip(rows, targets, strict=True)):
            for label, prob in model.predict_proba_one(x).items():
                probs[number, int(label)] = prob
            model.learn_one(x, bool(y) if stream.classes == 2 else y)
        return around(probs, stream)
    centre, spread = target_scale(stream)
    means = np.zeros(len(rows))
    for number, (x, y) in enumerate(zip(rows, targets, strict=True)):
        means[number] = centre + spread * (model.predict_one(x) or 0.0)
        model.learn_one(x, (y - centre) / spread)
    return around(means, stream)
