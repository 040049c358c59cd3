"""natkal at its defaults: nothing is set for any stream."""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from natkal.bench.learning import networks
from natkal.bench.learning.networks import Raw
from natkal.bench.learning.scores import Forecast
from natkal.bench.learning.streams import Stream
from natkal.paper.dictionary import fan_in_prior
from natkal.typing import Array, Params

DENSE_LIMIT = 5_000
"""`nk.online` keeps a full covariance up to so many parameters here, a diagonal one above."""


class Ours(NamedTuple):
    """What natkal forecast, its members' log-probabilities (members, n) where it has members, and its time."""

    forecast: Forecast
    members: np.ndarray | None
    us_per_row: float


def model_of(stream: Stream, params: Params) -> Any:
    """The network with its law as natkal sees it; a regression's log variance is one more parameter."""
    family = nk.families.GaussianUnknownVariance() if stream.kind == "regression" else stream.family

    def apply(params: Params, inputs: Array) -> Array:
        raw = nk.mlp_apply(params["network"], inputs)
        return jnp.append(raw, params["dispersion"]) if stream.kind == "regression" else raw

    return nk.static_model(apply, params, family)


def _curvature(model: Any) -> Any:
    return nk.dense() if model.size <= DENSE_LIMIT else nk.diagonal()


def default_online(stream: Stream) -> Ours:
    """`nk.online(model)`, no argument; inputs and a regression's targets standardised in hindsight, as for rivals."""
    inputs = jnp.asarray(networks.standardised(stream.inputs), jnp.float32)
    centre, spread = (stream.targets.mean(), stream.targets.std()) if stream.kind == "regression" else (0.0, 1.0)
    targets = (stream.targets - centre) / spread if stream.kind == "regression" else stream.targets
    params = networks.start(stream)
    model = model_of(stream, params)
    learner = nk.online(model, curvature=_curvature(model))

    @jax.jit
    def scan(inputs: Array, targets: Array) -> Raw:
        def body(state: Any, row: Any) -> tuple[Any, Raw]:
            raw = nk.mlp_apply(state.params["network"], row[0])
            new_state, info = learner.step_unchecked(state, *row)
            return new_state, Raw(raw, state.params["dispersion"], info.log_prob)

        return jax.lax.scan(body, learner.init(params), (inputs, targets))[1]

    said, us_per_row = timed(scan, inputs, jnp.asarray(targets))
    return Ours(networks.forecast(stream, said, True, (centre, spread)), None, us_per_row)


def timed(scan: Any, *rows: Array) -> tuple[Any, float]:
    """The result over all rows, and microseconds for each, compilation left out."""
    compiled = jax.jit(scan).lower(*rows).compile()
    begin = time.perf_counter()
    said = jax.block_until_ready(compiled(*rows))
    return jax.tree.map(np.asarray, said), 1e6 * (time.perf_counter() - begin) / len(rows[0])


def automatic(stream: Stream, factor: float = 1.0) -> Ours:
    """`nk.auto(model)` on the stream as it comes, inputs multiplied by `factor`."""
    return _stand_in(stream, factor)


def _stand_in(stream: Stream, factor: float) -> Ours:
    """Twelve capped filters mixed by their likelihood with a fixed share, inputs and targets standardised so far."""
    share = 1e-3
    scales, fadings = (jnp.ravel(g) for g in jnp.meshgrid(jnp.array([0.3, 1, 3, 10]), jnp.array([0, 1e-3, 5e-3])))
    inputs = _so_far(factor * stream.inputs, 0)
    shown = jnp.asarray(np.where(inputs[2] > 0, (factor * stream.inputs - inputs[1]) / inputs[2], 0.0), jnp.float32)
    regression = stream.kind == "regression"
    _, centre, spread = _so_far(stream.targets, 1) if regression else (None, 0.0, np.ones(len(stream.targets)))
    spread = np.maximum(spread, np.where(np.arange(len(spread)) < 3, 100.0, 0.0)) if regression else spread
    targets = jnp.asarray((stream.targets - centre) / spread if regression else stream.targets)
    params = networks.start(stream)
    model = model_of(stream, params)

    def member(scale: Array, fading: Array) -> Any:
        prior = jax.tree.map(lambda variance: scale * variance, fan_in_prior(params))
        return nk.online(model, prior_cov=prior, curvature=_curvature(model), rates=nk.fading(fading))

    def scan(shown: Array, targets: Array) -> Any:
        def body(carry: Any, row: Any) -> tuple[Any, Any]:
            states, weights = carry
            raws = jax.vmap(lambda s: nk.mlp_apply(s.params["network"], row[0]))(states)
            kept = states.params["dispersion"]
            states, log_prob = jax.vmap(lambda a, b, s: _only(member(a, b).step_unchecked(s, *row)))(
                scales, fadings, states
            )
            log_prob = jnp.where(jnp.isfinite(log_prob), log_prob, -1e3)
            joint = jnp.log(weights) + log_prob
            total = jax.nn.logsumexp(joint)
            new_weights = (1 - share) * jnp.exp(joint - total) + share / len(scales)
            return (states, new_weights), (raws, kept, weights, log_prob, total)

        start = jax.vmap(lambda a, b: member(a, b).init(params))(scales, fadings)
        return jax.lax.scan(body, (start, jnp.full(len(scales), 1 / len(scales))), (shown, targets))[1]

    (raws, kept, weights, log_probs, total), us = timed(scan, shown, targets)
    log_prob = np.asarray(total, float) - np.log(spread)
    members = np.asarray(log_probs, float).T - np.log(spread)
    match stream.kind:
        case "classification":
            logits = raws if stream.classes > 2 else np.concatenate([np.zeros_like(raws), raws], axis=2)
            probs = np.einsum("nm,nmk->nk", weights, np.asarray(jax.nn.softmax(logits, axis=2)))
            forecast = Forecast(log_prob=log_prob, probs=probs)
        case "regression":
            z = (np.asarray(targets)[:, None] - raws[:, :, 0]) / np.exp(0.5 * kept)
            below = np.sum(weights * np.asarray(jax.scipy.stats.norm.cdf(z)), axis=1)
            mean = centre + spread * np.sum(weights * raws[:, :, 0], axis=1)
            forecast = Forecast(log_prob=log_prob, mean=mean, below=below)
        case _:
            forecast = Forecast(log_prob=log_prob, mean=np.sum(weights * np.exp(raws[:, :, 0]), axis=1))
    return Ours(forecast, members, us)


def _only(stepped: Any) -> Any:
    return stepped[0], stepped[1].log_prob


def _so_far(values: np.ndarray, behind: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number, mean and spread of the rows up to each one (behind 0) or before it (behind 1)."""
    counts = np.arange(1, len(values) + 1, dtype=float).reshape(-1, *([1] * (values.ndim - 1)))
    mean = np.cumsum(values, axis=0) / counts
    square = np.cumsum((values - values[0]) ** 2, axis=0) / counts - (mean - values[0]) ** 2
    spread = np.sqrt(np.maximum(square, 1e-12 * np.maximum(np.abs(mean), 1e-300) ** 2))
    if behind:
        mean, spread = (np.concatenate([np.zeros_like(part[:1]), part[:-1]]) for part in (mean, spread))
    return counts, mean, spread
