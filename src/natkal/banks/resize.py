"""The state of a bank as one of a bank of the same members that take more inputs or more outputs.

Members are found by their names, so that it does not matter what else there is. The arrays of a member grow along
their axes (engine/growth.py); where the larger member keeps its covariance in another structure, it is projected. What
is kept for each member beside it (noise, weights, losses) goes with its name. A member that the larger bank no longer
has leaves its weight to the others.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from natkal.banks.bank import Bank
from natkal.banks.group import RunningMembers
from natkal.banks.scaled import Scaled
from natkal.banks.selection import SelectionState
from natkal.banks.state import BankState
from natkal.banks.units.standardise import ScaledState
from natkal.engine.growth import in_corner


def resize(old: Scaled, new: Scaled, state: ScaledState, *, restart: bool = False) -> ScaledState:
    """The state of `old` as one of `new`, which takes more inputs or more classes of the same table.

    With `restart` members start again, and only the rows' scales and the target's own past stay: for a model of which
    nothing tells where its old parameters are in the larger one.
    """
    fresh = new.init()
    past = in_corner(state.bank.marginal, fresh.bank.marginal)
    started = fresh.bank._replace(marginal=past)
    bank = started if restart else resize_bank(old.bank, new.bank, state.bank, fresh.bank)
    return in_corner(state._replace(bank=()), fresh._replace(bank=()))._replace(bank=bank)


def resize_bank(old: Bank, new: Bank, state: BankState, fresh: BankState) -> BankState:
    """The state of `old` as one of `new`, whose members are all among those of `old`; `fresh` is the start of `new`."""
    places = {name: place for place, name in enumerate(name for group in old.groups for name in group.names)}
    order = [places[name] for group in new.groups for name in group.names]
    members = []
    for group, start in zip(new.groups, fresh.members, strict=True):
        at, rows = _group_of(old, [places[name] for name in group.names])
        small: Any = old.groups[at].first
        large = group.first
        own = state.members[at] if rows == list(range(old.groups[at].size)) else _taken(state.members[at], rows)
        move = lambda one, begin, small=small, large=large: small.embedded(one, large, begin)  # noqa: E731
        members.append(jax.vmap(move)(own, start))
    rest = state._replace(members=())
    if len(order) < old.size:
        rest = _of_members(rest, order, [_group_of(old, [places[name] for name in g.names]) for g in new.groups])
    return in_corner(rest, fresh._replace(members=()))._replace(members=tuple(members))


def _group_of(bank: Bank, members: Sequence[int]) -> tuple[int, list[int]]:
    """The group of these members, all of one group, and their places in it."""
    for at, (_, rows) in enumerate(bank.rows()):
        if rows.start <= members[0] < rows.stop:
            return at, [member - rows.start for member in members]
    raise AssertionError("members are those of the bank")


def _taken(tree: Any, rows: Sequence[int]) -> Any:
    return jax.tree.map(lambda leaf: leaf[np.asarray(rows)], tree)


def _of_members(rest: BankState, order: Sequence[int], groups: Sequence[tuple[int, list[int]]]) -> BankState:
    """What is kept beside the members, of these alone; their weights make up for those of the others."""
    weights = rest.log_weights[np.asarray(order)]
    selection: SelectionState | None = rest.selection
    if selection is not None:
        running = tuple(_still_running(selection.running[at], rows) for at, rows in groups)
        of_members = {name: _taken(getattr(selection, name), order) for name in ("loss", "trial", "odds", "away")}
        selection = selection._replace(running=running, **of_members)
    return rest._replace(
        noise=_taken(rest.noise, order),
        log_weights=weights - logsumexp(weights),
        memory=_taken(rest.memory, order),
        prior_left=_taken(rest.prior_left, order),
        silent=_taken(rest.silent, order),
        selection=selection,
    )


def _still_running(own: RunningMembers, rows: Sequence[int]) -> RunningMembers:
    """The same members in the same order, numbered without those that are left out."""
    position = jnp.argsort(own.order)[np.asarray(rows)]
    return RunningMembers(
        order=jnp.argsort(position).astype(own.order.dtype),
        running=jnp.sum(position < own.running, dtype=own.running.dtype),
    )
