"""The network of a stream and the law of its target, the same for natkal and for its rivals."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from benchmarks.streams.laws import counts, gaussian
from benchmarks.streams.scores import Forecast
from benchmarks.streams.stream import Stream
from natkal.typing import Array, Params


class Raw(NamedTuple):
    """What a network says of a row: raw output (k,), log of the dispersion, and log p(y)."""

    output: Array
    dispersion: Array
    log_prob: Array


def start(stream: Stream, seed: int = 0) -> Params:
    """Weights N(0, 1/fan-in), zero biases, and dispersion 1 (variance of a Gaussian, r of a negative binomial)."""
    return {"network": nk.mlp_params(jax.random.key(seed), stream.sizes), "dispersion": jnp.zeros(())}


def predict(stream: Stream, params: Params, inputs: Array, target: Array, learned: Array) -> Raw:
    """The law of one row. Where `learned` is 0 the dispersion is left out: unit variance, or a Poisson law."""
    raw = nk.mlp_apply(params["network"], inputs)
    dispersion = params["dispersion"]
    match stream.kind:
        case "classification":
            log_prob = stream.family.log_prob(stream.family.link(raw), target)
        case "regression":
            law = nk.families.GaussianUnknownVariance()
            log_prob = law.log_prob(law.link(jnp.stack([raw[0], learned * dispersion])), target)
        case _:
            spread, plain = nk.families.NegativeBinomial(jnp.exp(dispersion)), nk.families.Poisson()
            log_prob = jnp.where(
                learned > 0,
                spread.log_prob(spread.link(raw), target),
                plain.log_prob(plain.link(raw), target),
            )
    return Raw(output=raw, dispersion=dispersion, log_prob=log_prob)


def forecast(stream: Stream, said: Raw, learned: bool, scale: tuple[float, float] = (0.0, 1.0)) -> Forecast:
    """Scores need laws in the target's units: `scale` is the mean and the spread that the target was divided by.

    A dispersion that was not learned is the best constant in hindsight.
    """
    output, log_prob = np.asarray(said.output, float), np.asarray(said.log_prob, float)
    match stream.kind:
        case "classification":
            logits = output if stream.classes > 2 else np.concatenate([np.zeros_like(output), output], axis=1)
            return Forecast(log_prob=log_prob, probs=np.asarray(jax.nn.softmax(logits, axis=1), float))
        case "regression":
            mean = scale[0] + scale[1] * output[:, 0]
            error = stream.targets - mean
            spread = scale[1] * np.exp(0.5 * np.asarray(said.dispersion, float))
            if not learned:
                spread = np.full_like(mean, np.sqrt(np.mean(error**2)))
            return gaussian(mean, spread, stream.targets)
        case _:
            mean = np.exp(np.minimum(output[:, 0], 50.0))
            return Forecast(log_prob=log_prob, mean=mean) if learned else counts(mean, stream.targets)
