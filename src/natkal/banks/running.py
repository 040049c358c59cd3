"""The members of a bank that run, as a smaller bank: after many rows few are left, and mixing costs only what they do.

`room` says for each group how many members the smaller bank has: all of them, or the first so many of those that run.
Only slices of one entry are used: a gather or a scatter would not become part of one machine function.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from natkal.banks.group import RunningMembers, entry, with_entry
from natkal.banks.state import BankState
from natkal.typing import Array, Int

Room = tuple[int, ...]
_BY_MEMBER = ("noise", "log_weights", "memory", "prior_left", "silent")
_LOSSES = ("loss", "trial", "odds", "away")


def running_bank(bank: Any, room: Room) -> Any:
    """A bank with that many members of each group, for mixing alone: which of the members they are is in the state."""
    groups = tuple(group.take(range(count)) for group, count in zip(bank.groups, room, strict=True) if count)
    smaller = dataclasses.replace(bank, groups=groups)
    return dataclasses.replace(smaller, share=bank.share * smaller.experts / bank.experts)


def taken(rest: BankState, room: Room) -> BankState:
    """The state of the smaller bank."""
    selection = rest.selection
    assert selection is not None
    at = _places(rest, room)
    running = tuple(
        RunningMembers(jnp.arange(count, dtype=own.order.dtype), own.running) if count < len(own.order) else own
        for own, count in zip(selection.running, room, strict=True)
        if count
    )
    part = {name: jax.tree.map(lambda leaf: _picked(leaf, at), getattr(rest, name)) for name in _BY_MEMBER}
    losses = {name: _picked(getattr(selection, name), at) for name in _LOSSES}
    return rest._replace(**part, selection=selection._replace(running=running, **losses))


def put_back(rest: BankState, smaller: BankState, room: Room) -> BankState:
    """The state of the whole bank once the smaller one has gone on."""
    before, after = rest.selection, smaller.selection
    assert before is not None
    assert after is not None
    at = _places(rest, room)
    part = {
        name: jax.tree.map(lambda leaf, new: _with(leaf, at, new), getattr(rest, name), getattr(smaller, name))
        for name in _BY_MEMBER
    }
    losses = {name: _with(getattr(before, name), at, getattr(after, name)) for name in _LOSSES}
    return smaller._replace(**part, selection=after._replace(running=before.running, **losses))


def told_of(told: Sequence[Any], rest: BankState, room: Room) -> tuple[Any, ...]:
    """What the members of the smaller bank told, row by row: the second axis is that of the members."""
    assert rest.selection is not None
    parts = []
    for said, own, count in zip(told, rest.selection.running, room, strict=True):
        if count:
            at = _within(own, count)
            parts.append(jax.tree.map(lambda leaf, at=at: _picked(leaf, at, axis=1), said))
    return tuple(parts)


def spread_out(numbers: Array, rest: BankState, room: Room) -> Array:
    """Numbers of the members of the smaller bank (the second axis) as numbers of all members, 0 of the others."""
    whole = jnp.zeros((len(rest.log_weights), len(numbers)), numbers.dtype)
    return _with(whole, _places(rest, room), numbers.T).T


def _places(rest: BankState, room: Room) -> list[Int[Array, ""]]:
    """The places among all members of those of the smaller bank."""
    assert rest.selection is not None
    first, places = 0, []
    for own, count in zip(rest.selection.running, room, strict=True):
        places += [jnp.asarray(first + place) for place in _within(own, count)]
        first += len(own.order)
    return places


def _within(running: RunningMembers, count: int) -> Sequence[Any]:
    """The places within a group of the members that the smaller bank has."""
    return [running.order[place] for place in range(count)] if count < len(running.order) else range(count)


def _picked(leaf: Array, places: Sequence[Any], axis: int = 0) -> Array:
    leaf = jnp.moveaxis(leaf, axis, 0)
    return jnp.stack([entry(leaf, jnp.asarray(place)) for place in places], axis=axis)


def _with(leaf: Array, places: Sequence[Any], values: Array) -> Array:
    for place, value in zip(places, values, strict=True):
        leaf = with_entry(leaf, place, value)
    return leaf
