"""river's own models on the same streams, several for each kind of target, the best taken in hindsight.

River forecasts classes or means. Class probabilities are mixed with a uniform law, whose share is the best in hindsight
(a tree gives 0 to what it has not seen). A regression's targets are standardised over the whole stream, as for the
other rivals; around a mean, a Gaussian gets the better of a running variance, over a grid of memories, and the best
constant in hindsight; a count gets the negative binomial that is best in hindsight.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.learning import networks
from benchmarks.learning.rivals import Best
from benchmarks.learning.scores import Forecast, log_loss
from benchmarks.learning.streams import Stream

UNIFORM_SHARES = (1e-6, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3)
MEMORIES = (0.0, 0.003, 0.01, 0.03, 0.1)
RATES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1)
WIDE = 100
"""Above so many inputs only softmax regression is run: trees, neighbours and naive Bayes would take hours."""


def models(stream: Stream) -> Iterator[tuple[str, Any]]:
    """Name and model, for the stream's kind of target."""
    from river import forest, linear_model, multiclass, naive_bayes, neighbors, optim, preprocessing, tree

    def scaled(model: Any) -> Any:
        return preprocessing.StandardScaler() | model

    wide = stream.inputs.shape[1] > WIDE
    match stream.kind:
        case "classification":
            for rate in RATES[:3] if wide else RATES:
                if stream.classes == 2:
                    yield f"logistic regression, SGD {rate:g}", scaled(linear_model.LogisticRegression(optim.SGD(rate)))
                    yield (
                        f"logistic regression, Adam {rate:g}",
                        scaled(linear_model.LogisticRegression(optim.Adam(rate))),
                    )
                else:
                    yield f"softmax regression, SGD {rate:g}", scaled(linear_model.SoftmaxRegression(optim.SGD(rate)))
            if stream.classes > 2 and not wide:
                one = linear_model.LogisticRegression(optim.SGD(0.03))
                yield "one-vs-rest logistic regression", scaled(multiclass.OneVsRestClassifier(one))
            if not wide:
                yield "Gaussian naive Bayes", naive_bayes.GaussianNB()
                yield "Hoeffding adaptive tree", tree.HoeffdingAdaptiveTreeClassifier(seed=0)
                yield "adaptive random forest", forest.ARFClassifier(seed=0)
                yield "nearest neighbours", scaled(neighbors.KNNClassifier(n_neighbors=10))
        case "regression":
            for rate in RATES:
                yield f"linear regression, SGD {rate:g}", scaled(linear_model.LinearRegression(optim.SGD(rate)))
                yield f"linear regression, Adam {rate:g}", scaled(linear_model.LinearRegression(optim.Adam(rate)))
            for smoothing in (None, 0.99, 0.95):
                name = "Bayesian linear regression" + (f", smoothing {smoothing:g}" if smoothing else "")
                yield name, scaled(linear_model.BayesianLinearRegression(smoothing=smoothing))
            yield "Hoeffding adaptive tree", scaled(tree.HoeffdingAdaptiveTreeRegressor(seed=0))
            yield "adaptive random forest", scaled(forest.ARFRegressor(seed=0))
            yield "nearest neighbours", scaled(neighbors.KNNRegressor(n_neighbors=10))
        case _:
            for rate in RATES:
                poisson = linear_model.LinearRegression(optim.SGD(rate), loss=optim.losses.Poisson(), intercept_lr=rate)
                yield f"Poisson regression, SGD {rate:g}", scaled(poisson)
            yield "Bayesian linear regression", scaled(linear_model.BayesianLinearRegression())
            yield "Hoeffding adaptive tree", scaled(tree.HoeffdingAdaptiveTreeRegressor(seed=0))
            yield "adaptive random forest", scaled(forest.ARFRegressor(seed=0))


def run(model: Any, stream: Stream) -> Forecast:
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
        return _with_share(probs, stream.targets)
    centre, spread = (stream.targets.mean(), stream.targets.std()) if stream.kind == "regression" else (0.0, 1.0)
    means = np.zeros(len(rows))
    for number, (x, y) in enumerate(zip(rows, targets, strict=True)):
        means[number] = centre + spread * (model.predict_one(x) or 0.0)
        model.learn_one(x, (y - centre) / spread)
    return _around(means, stream)


def best(stream: Stream, report: Any = lambda note: None) -> Best:
    """The model with the lowest log loss."""
    found = []
    for name, model in models(stream):
        begin = time.perf_counter()
        try:
            forecast = run(model, stream)
        except (OverflowError, ValueError) as error:
            report(f"{stream.name}: {name} failed: {error}")
            continue
        found.append(Best(forecast, name, 1e6 * (time.perf_counter() - begin) / len(stream.targets)))
        report(f"{stream.name}: {name} {log_loss(forecast):.4f}")
    return min(found, key=lambda one: log_loss(one.forecast))


def _with_share(probs: np.ndarray, targets: np.ndarray) -> Forecast:
    total = np.nan_to_num(probs).sum(axis=1, keepdims=True)
    classes = probs.shape[1]
    sound = np.where(total > 0, np.nan_to_num(probs) / np.where(total > 0, total, 1.0), 1 / classes)
    found = []
    for share in UNIFORM_SHARES:
        mixed = (1 - share) * sound + share / classes
        found.append(Forecast(log_prob=np.log(mixed[np.arange(len(targets)), targets]), probs=mixed))
    return min(found, key=log_loss)


def _around(means: np.ndarray, stream: Stream) -> Forecast:
    if stream.kind == "count":
        return networks.counts(np.maximum(np.nan_to_num(means), 0.01), stream.targets)
    square = (stream.targets - means) ** 2
    found = [networks.gaussian(means, np.full_like(means, np.sqrt(square.mean())), stream.targets)]
    for memory in MEMORIES:
        variance = np.empty_like(square)
        level = float(stream.targets.var())  # the spread before the first row is also given in hindsight
        for number, value in enumerate(square):
            variance[number] = level
            level += max(memory, 1 / (number + 2)) * (value - level)
        found.append(networks.gaussian(means, np.sqrt(variance), stream.targets))
    return min(found, key=log_loss)
