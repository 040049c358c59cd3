"""Resize a state when features or classes are added: each member by itself, the rest in a corner of the new one."""

import jax

from natkal.banks.scaled import Scaled
from natkal.banks.units.standardise import ScaledState
from natkal.engine.growth import in_corner


def resized(old: Scaled, state: ScaledState, new: Scaled) -> ScaledState:
    """The state of `old` as one of `new`, which takes more inputs or more classes of the same table."""
    fresh = new.init()
    members = []
    groups = zip(old.bank.groups, new.bank.groups, state.bank.members, fresh.bank.members, strict=True)
    for group, larger_group, own, larger in groups:
        small, large = group.first, larger_group.first
        move = jax.vmap(lambda one, start, small=small, large=large: small.embedded(one, large, start))  # pyright: ignore[reportAttributeAccessIssue]
        members.append(move(own, larger))
    bank = state.bank._replace(members=())
    kept = in_corner(bank, fresh.bank._replace(members=()))
    rest = in_corner(state._replace(bank=()), fresh._replace(bank=()))
    return rest._replace(bank=kept._replace(members=tuple(members)))
