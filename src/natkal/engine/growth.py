"""The state of a filter as one of a larger filter, with more inputs or more outputs.

New inputs and new outputs come last in every array, so an old array is the leading corner of its larger one. What was
never seen is independent of all that was learned: the covariance of the larger parameter vector is the old one on the
old entries and the prior's elsewhere (`Curvature.embed`). Where the larger filter keeps its covariance in another
structure, the old covariance is brought into that one first (`Curvature.project`).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.engine.prior import layout_of
from natkal.engine.state import KalmanState


def embedded(small: Any, large: Any, state: KalmanState, fresh: KalmanState) -> KalmanState:
    """`state` of the filter `small` within `fresh`, the start of the filter `large`."""
    kept = {"curvature": (), "carry": (), "key": ()}
    plain = in_corner(state._replace(**kept), fresh._replace(**kept))
    places = _places(state.params, fresh.params)
    own = small.curvature.project(state.curvature, large.curvature, layout_of(small.model))
    return plain._replace(
        curvature=large.curvature.embed(own, fresh.curvature, places),
        carry=_carried(state.carry, fresh.carry, places, large.model.size),
        key=state.key,
    )


def in_corner(old: Any, new: Any) -> Any:
    """Every array of `old` in the leading corner of its larger one; what `old` had no use for is as `new` starts."""
    return jax.tree.map(_lay, old, new, is_leaf=lambda leaf: leaf is None)


def _lay(small: Any, large: Any) -> Any:
    if small is None:  # the scales of a table without numbers
        return large
    if small.shape == large.shape:
        return small
    return large.at[tuple(slice(0, size) for size in small.shape)].set(small)


def _carried(old: Any, new: Any, places: np.ndarray, size: int) -> Any:
    """A model's memory: an array with an axis of all parameters, its last one, has each where it is now."""

    def move(small: Any, large: Any) -> Any:
        if small.shape[-1:] == (len(places),) and large.shape[-1:] == (size,) and small.shape != large.shape:
            return large.at[..., places].set(small)
        return _lay(small, large)

    return jax.tree.map(move, old, new)


def _places(old: Any, new: Any) -> np.ndarray:
    """For every entry of the small flat parameter vector, its place in the large one."""
    places, first = [], 0
    for small, large in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True):
        numbers = np.arange(first, first + large.size).reshape(large.shape)
        places.append(numbers[tuple(slice(0, size) for size in jnp.shape(small))].ravel())
        first += large.size
    return np.concatenate(places)
