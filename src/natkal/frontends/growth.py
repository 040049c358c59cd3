"""A learner laid into a larger one: what it knew stays where it was, the rest is the prior."""

import jax
import numpy as np

from natkal.curvature.dense import DenseState
from natkal.frontends.machine import Machine, Memory


def grown(old: Machine, buffer: np.ndarray, new: Machine, fresh: np.ndarray) -> np.ndarray:
    """The buffer of `old` within `fresh`, a buffer of `new`, which has at least as many columns and outputs.

    Features and classes that were never seen are independent of all that was learned, so the covariance of the larger
    parameter vector is the old one on the old entries and the prior's elsewhere.
    """
    if not isinstance(old.template.learner.curvature, DenseState):
        raise ValueError(
            "features: more than 2,000 parameters cannot grow; give all features in the first row, or hash them"
        )
    values, places = old.unpack_host(buffer), new.unpack_host(np.arange(len(fresh)))
    params = _corner(places.learner.params, values.learner.params)
    first = np.ravel(jax.tree.leaves(places.learner.params)[0])[0]
    kept = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)]) - first
    where = _corner(places, values)
    where = where._replace(
        learner=where.learner._replace(
            params=params,
            curvature=DenseState(cov=places.learner.curvature.cov[np.ix_(kept, kept)], prior=None),
        )
    )
    result = fresh.copy()
    for place, value in zip(jax.tree.leaves(where), jax.tree.leaves(values), strict=True):
        result[place] = value
    return result


def _corner(places: Memory, values: Memory) -> Memory:
    """The first entries of each leaf along each axis, as many as `values` has."""
    return jax.tree.map(lambda place, value: place[tuple(slice(size) for size in value.shape)], places, values)
