"""Resize a state when features or classes are added.

What was never seen is independent of all that was learned: the covariance of the larger parameter vector is the old one
on the old entries and the prior's elsewhere (`Curvature.embed`). New inputs and new outputs come last in every array,
so an old array is the leading corner of its larger one.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.learners.scaled import Scaled
from natkal.learners.standardiser import ScaledState


def resized(old: Scaled, state: ScaledState, new: Scaled) -> ScaledState:
    """The state of `old` as one of `new`, which takes more inputs or more classes of the same table."""
    fresh = new.init()
    members = []
    groups = zip(old.bank.groups, new.bank.groups, state.bank.members, fresh.bank.members, strict=True)
    for group, larger_group, own, larger in groups:
        places = _places(group.first.init().params, larger_group.first.init().params)
        curvature: Any = larger_group.first.curvature  # pyright: ignore[reportAttributeAccessIssue]
        embedded = jax.vmap(lambda small, large, c=curvature, at=places: c.embed(small, large, at))(
            own.curvature, larger.curvature
        )
        plain = _corner(own._replace(curvature=(), key=()), larger._replace(curvature=(), key=()))
        members.append(plain._replace(curvature=embedded, key=own.key))
    bank = state.bank._replace(members=())
    kept = _corner(bank, fresh.bank._replace(members=()))
    rest = _corner(state._replace(bank=()), fresh._replace(bank=()))
    return rest._replace(bank=kept._replace(members=tuple(members)))


def _corner(old: Any, new: Any) -> Any:
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
