"""The state of a filter as one of a larger filter of the same kind, with more inputs or more outputs.

New inputs and new outputs come last in every array, so an old array is the leading corner of its larger one. What was
never seen is independent of all that was learned: the covariance of the larger parameter vector is the old one on the
old entries and the prior's elsewhere (`Curvature.embed`).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.engine.state import KalmanState


def embedded(curvature: Any, state: KalmanState, fresh: KalmanState) -> KalmanState:
    """`state` within `fresh`, the start of the larger filter, whose curvature is `curvature`."""
    plain = in_corner(state._replace(curvature=(), key=()), fresh._replace(curvature=(), key=()))
    places = _places(state.params, fresh.params)
    return plain._replace(curvature=curvature.embed(state.curvature, fresh.curvature, places), key=state.key)


def in_corner(old: Any, new: Any) -> Any:
    """Every array of `old` in the leading corner of its larger one; what `old` had no use for is as `new` starts."""

    def lay(small: Any, large: Any) -> Any:
        if small is None:  # the scales of a table without numbers
            return large
        if small.shape == large.shape:
            return small
        return large.at[tuple(slice(0, size) for size in small.shape)].set(small)

    return jax.tree.map(lay, old, new, is_leaf=lambda leaf: leaf is None)


def _places(old: Any, new: Any) -> np.ndarray:
    """For every entry of the small flat parameter vector, its place in the large one."""
    places, first = [], 0
    for small, large in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True):
        numbers = np.arange(first, first + large.size).reshape(large.shape)
        places.append(numbers[tuple(slice(0, size) for size in jnp.shape(small))].ravel())
        first += large.size
    return np.concatenate(places)
