"""What a learner expected of each target, whether one filter said it or a bank of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from natkal.engine import Prediction
from natkal.families import Family
from natkal.learners import Bank, Mixture
from natkal.tabular.laws import Law
from natkal.typing import Array, Float


class Expectation(NamedTuple):
    """Mean and covariance of T(y), and log p(y), NaN where y is missing, of one target as the learner sees it."""

    mean: Float[Array, " k"]
    cov: Float[Array, "k k"]
    log_prob: Float[Array, ""]


def expectations(
    learner: Any, laws: Sequence[Law], prediction: Any, targets: Sequence[Array], log_prob: Array | None
) -> list[Expectation]:
    """One for each target; a bank has one target, and `log_prob` saves computing what a step has told already."""
    if isinstance(learner, Bank):
        return [_mixed(learner, prediction, targets[0], log_prob)]
    return _single(laws, prediction, targets)


def weights_and_memory(learner: Any, state: Any, prediction: Any) -> Float[Array, " m"]:
    """Each filter's weight in the prediction, and how many rows they remember on average; nothing for one filter."""
    if not isinstance(learner, Bank):
        return jnp.zeros(0)
    weights = jnp.sum(prediction.weights, axis=1)
    return jnp.append(weights, weights @ state.memory)


def member_names(learner: Any) -> list[str]:
    """What `weights_and_memory` says, number by number."""
    if not isinstance(learner, Bank):
        return []
    values = learner.groups[0].values
    settings = zip(values["prior"].tolist(), values["fading"].tolist(), strict=True)
    return [*(f"weight prior {prior:g} fading {fading:g}" for prior, fading in settings), "effective memory"]


def _mixed(bank: Bank, mixture: Mixture, y: Array, log_prob: Array | None) -> Expectation:
    if log_prob is None:
        voices = bank.voices
        assert voices is not None  # every bank of `auto` has them
        known = jnp.where(jnp.isnan(y), 0.0, y)
        spoken = jax.vmap(jax.vmap(lambda law: voices.log_prob(law, known)))(mixture.laws)
        log_prob = logsumexp(jnp.log(mixture.weights) + spoken)
    return Expectation(mixture.mean, mixture.total_cov, jnp.where(jnp.isnan(y), jnp.nan, log_prob))


def _single(laws: Sequence[Law], prediction: Prediction, targets: Sequence[Array]) -> list[Expectation]:
    """Each law's own entries of the joint prediction."""
    assert prediction.total_cov is not None  # left out only by learners that sample their Fisher factors
    parts, first = [], 0
    for law, y in zip(laws, targets, strict=True):
        family: Family = law.family
        own = slice(first, first + family.dim)
        first = own.stop
        log_prob = family.log_prob(prediction.natural[own], jnp.where(jnp.isnan(y), 0.0, y))
        parts.append(
            Expectation(
                prediction.mean[own], prediction.total_cov[own, own], jnp.where(jnp.isnan(y), jnp.nan, log_prob)
            )
        )
    return parts
