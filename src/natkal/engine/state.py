"""What a learner knows, what it expects, and what an observation told it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.engine.counter import Counter
from natkal.families.base import Family
from natkal.typing import Array, Bool, Float, Int, Params


class LearnerState(NamedTuple):
    """All a learner knows.

    `steps` counts the observations learned from, `outliers` the down-weighted ones in a row just now (robust learners).
    `prior_params` is the prior's centre where the prior is kept, None elsewhere.
    """

    params: Params
    curvature: Any
    carry: Any
    steps: Counter
    outliers: Int[Array, ""]
    key: Array
    prior_params: Params | None


class Prediction(NamedTuple):
    """What is expected of y before it is seen.

    `natural` and `mean` are the plug-in law's parameters. `natural_cov` is the covariance of the natural parameters
    that comes from not knowing theta, and `total_cov` that of T(y) from both sources, the law's own noise and theta.
    Both are None in the `StepInfo` of a learner that follows only a few combinations of many outputs.
    """

    natural: Float[Array, " k"]
    mean: Float[Array, " k"]
    natural_cov: Float[Array, "k k"] | None
    total_cov: Float[Array, "k k"] | None


class StepInfo(NamedTuple):
    """What one observation told.

    `log_prob` is that of y before learning from it (of its observed part; 0 where all of y is missing). `observed`:
    some of y was there. `accepted`: the step was finite and was taken; a step that was not leaves the state as it was.
    `weight` is what the observation counted for, 1 unless a robust learner took it for an outlier.
    """

    log_prob: Float[Array, ""]
    prediction: Prediction
    observed: Bool[Array, ""]
    accepted: Bool[Array, ""]
    weight: Float[Array, ""]


def make_prediction(outputs: Family, raw: Float[Array, " k"], raw_cov: Float[Array, "k k"] | None) -> Prediction:
    """The plug-in law at `raw`, blurred by `raw_cov`: Cov[T] + Cov[T] natural_cov Cov[T], as d mean / d nu = Cov[T]."""
    if raw_cov is None:
        law = outputs.link(raw)
        return Prediction(natural=law, mean=outputs.mean(law), natural_cov=None, total_cov=None)
    natural, push = jax.linearize(outputs.link, raw)
    link_jacobian = jax.vmap(push, out_axes=1)(jnp.eye(len(raw), dtype=raw.dtype))
    natural_cov = link_jacobian @ raw_cov @ link_jacobian.T
    noise_cov = outputs.cov(natural)
    return Prediction(
        natural=natural,
        mean=outputs.mean(natural),
        natural_cov=natural_cov,
        total_cov=noise_cov + noise_cov @ natural_cov @ noise_cov,
    )
