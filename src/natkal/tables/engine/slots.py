"""Models of many keys side by side: a slot for each along a leading axis, with room for keys to come."""

from typing import Any

import jax
import jax.numpy as jnp

FIRST_SLOTS = 16


def slots_for(needed: int) -> int:
    """A power of two times the first slots, at least so many."""
    slots = FIRST_SLOTS
    while slots < needed:
        slots *= 2
    return slots


def slots_of(states: Any) -> int:
    """How many slots these states have."""
    return jax.tree.leaves(states)[0].shape[0]


def spread(state: Any, count: int) -> Any:
    """`count` copies of a state along a leading axis."""
    return jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf)[None], count, axis=0), state)


def with_slots(states: Any, new: Any, size: int) -> Any:
    """The states with at least so many slots; each further one holds `new`, which has a leading axis of one."""
    more = size - slots_of(states)
    if more <= 0:
        return states
    return jax.tree.map(lambda old, one: jnp.concatenate([old, jnp.repeat(one, more, axis=0)]), states, new)
