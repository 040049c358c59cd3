"""natkal at its defaults: nothing is set for any stream."""

import dataclasses
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from benchmarks.learning import networks
from benchmarks.learning.networks import Raw
from benchmarks.streams.laws import standardised, target_scale
from benchmarks.streams.scores import Forecast
from benchmarks.streams.stream import Stream
from natkal.typing import Array, Params

DENSE_LIMIT = 5_000
"""`nk.online` keeps a full covariance up to so many parameters here, a diagonal one above."""


class Ours(NamedTuple):
    """What natkal forecast and how long a row took; for a bank also what each expert said and what was promised.

    `experts` (n, experts) are log-probabilities; `bound` is the most that the bank may lose to the best of them, in
    nats per row; `reseeded` counts members that went bad and started again.
    """

    forecast: Forecast
    us_per_row: float
    experts: np.ndarray
    bound: float
    reseeded: int


def automatic(stream: Stream, factor: float = 1.0, share: float | None = None) -> Ours:
    """`nk.auto(model)` on the stream as it comes, inputs multiplied by `factor`; its own share, or another."""
    params = nk.mlp_params(jax.random.key(0), stream.sizes)
    learner = nk.auto(nk.static_model(nk.mlp_apply, params, stream.family), inputs=stream.inputs[0])
    if share is not None:
        learner = dataclasses.replace(learner, bank=dataclasses.replace(learner.bank, share=share))
    inputs, targets = jnp.asarray(factor * stream.inputs, jnp.float32), jnp.asarray(stream.targets)
    start = learner.init(params)

    def scan(inputs: Array, targets: Array) -> Any:
        return jax.lax.scan(lambda state, row: learner.step(state, *row), start, (inputs, targets))[1]

    info, us_per_row = timed(scan, inputs, targets)
    log_prob, mean = np.asarray(info.log_prob, float), np.asarray(info.prediction.mean, float)
    match stream.kind:
        case "classification":
            probs = mean if mean.shape[1] == stream.classes else np.concatenate([1 - mean, mean], axis=1)
            forecast = Forecast(log_prob=log_prob, probs=probs)
        case "regression":
            below = np.asarray(info.prediction.cdf(targets), float)
            forecast = Forecast(log_prob=log_prob, mean=mean[:, 0], below=below)
        case _:
            forecast = Forecast(log_prob=log_prob, mean=mean[:, 0])
    rows = len(log_prob)
    return Ours(
        forecast=forecast,
        us_per_row=us_per_row,
        experts=np.asarray(info.expert_log_prob, float).reshape(rows, -1),
        bound=learner.bank.regret_bound(rows) / rows,
        reseeded=int(info.reseeded[-1]),
    )


def single(stream: Stream) -> tuple[Forecast, float]:
    """`nk.online(model)`; inputs and a regression's targets standardised in hindsight, as for rivals."""
    inputs = jnp.asarray(standardised(stream.inputs), jnp.float32)
    centre, spread = target_scale(stream)
    targets = (stream.targets - centre) / spread if stream.kind == "regression" else stream.targets
    params = networks.start(stream)
    model = _with_variance(stream, params)
    learner = nk.online(model, curvature=nk.dense() if model.size <= DENSE_LIMIT else nk.diagonal())

    def scan(inputs: Array, targets: Array) -> Raw:
        def body(state: Any, row: Any) -> tuple[Any, Raw]:
            raw = nk.mlp_apply(state.params["network"], row[0])
            new_state, info = learner.step(state, *row)
            return new_state, Raw(raw, state.params["dispersion"], info.log_prob)

        return jax.lax.scan(body, learner.init(params), (inputs, targets))[1]

    said, us_per_row = timed(scan, inputs, jnp.asarray(targets))
    return networks.forecast(stream, said, True, (centre, spread)), us_per_row


def _with_variance(stream: Stream, params: Params) -> Any:
    """The network with its law; a regression's log variance is one more parameter."""
    family = nk.families.GaussianUnknownVariance() if stream.kind == "regression" else stream.family

    def apply(params: Params, inputs: Array) -> Array:
        raw = nk.mlp_apply(params["network"], inputs)
        return jnp.append(raw, params["dispersion"]) if stream.kind == "regression" else raw

    return nk.static_model(apply, params, family)


def timed(scan: Any, *rows: Array) -> tuple[Any, float]:
    """The result over all rows, and microseconds for each, compilation left out."""
    compiled = jax.jit(scan).lower(*rows).compile()
    begin = time.perf_counter()
    said = jax.block_until_ready(compiled(*rows))
    return jax.tree.map(np.asarray, said), 1e6 * (time.perf_counter() - begin) / len(rows[0])
