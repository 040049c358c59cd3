"""How far a structured learner is from the dense one, along a stream."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature import Curvature, dense
from natkal.curvature.distance import cosine, gaussian_kl
from natkal.engine.learner import KalmanLearner
from natkal.models import ravel
from natkal.stream.checks import check_stream
from natkal.typing import Array, Float


class Distance(NamedTuple):
    """For every observation: the cosine of the step against the dense step, and the ratio of their lengths.

    `kl` is KL(structured || dense) in nats per parameter after the last observation.
    """

    cosine: Float[Array, " n"]
    length_ratio: Float[Array, " n"]
    kl: Float[Array, ""]


def distance(learner: KalmanLearner, inputs: Any, targets: Any, *, curvature: Curvature | None = None) -> Distance:
    """How far `learner`'s curvature is from the dense one (or from `curvature`) on this stream.

    Both see the same observations, linearised at the parameters of the reference as it learns, so that what differs is
    the curvature alone.
    """
    check_stream(learner, inputs, targets)
    reference = dataclasses.replace(learner, curvature=dense() if curvature is None else curvature)
    return _along(learner, reference, jax.tree.map(jnp.asarray, inputs), jnp.asarray(targets))


@partial(jax.jit, static_argnums=(0, 1))
def _along(learner: KalmanLearner, reference: KalmanLearner, inputs: Any, targets: Array) -> Distance:
    def observe(states: Any, row: Any) -> tuple[Any, tuple[Array, Array]]:
        structured, exact = states
        here = structured._replace(params=exact.params, carry=exact.carry)
        after, _ = learner.step(here, *row)
        after_exact, _ = reference.step(exact, *row)
        step = ravel(after.params) - ravel(exact.params)
        exact_step = ravel(after_exact.params) - ravel(exact.params)
        ratio = jnp.sqrt((step @ step) / jnp.maximum(exact_step @ exact_step, jnp.finfo(step.dtype).tiny))
        return (after, after_exact), (cosine(step, exact_step), ratio)

    start = (learner.init(), reference.init())
    (structured, exact), (cosines, ratios) = jax.lax.scan(observe, start, (inputs, targets))
    cov, exact_cov = learner.covariance(structured), reference.covariance(exact)
    return Distance(cosine=cosines, length_ratio=ratios, kl=gaussian_kl(cov, exact_cov) / len(cov))
