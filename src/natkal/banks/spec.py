"""A bank as data: names, numbers and strings. What is built from it may grow; the members it names stay the same."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self


@dataclasses.dataclass(frozen=True)
class MemberSpec:
    """One member: the scale of its prior, its fading, which inputs it sees and where its weights start.

    `inputs` is "all" or "without past". `start` is "zero" or "naive", the weights of a naive forecast. `reach` is that
    of cells, None where there are none.
    """

    name: str
    prior: float
    fading: float
    inputs: str = "all"
    start: str = "zero"
    reach: float | None = None


@dataclasses.dataclass(frozen=True)
class GroupSpec:
    """Members of one architecture."""

    architecture: str
    dtype: str
    members: tuple[MemberSpec, ...]


@dataclasses.dataclass(frozen=True)
class BankSpec:
    """Groups of members, cheapest first, and how they are mixed.

    `one_law`: one predictive law for a single filter, not several. `selects`: members that have lost stop, and with a
    `budget` in microseconds no more run than fit into it. `standardize`: numbers are scaled. `seed` is that of first
    weights and grids.
    """

    groups: tuple[GroupSpec, ...]
    one_law: bool
    selects: bool
    budget: float | None
    standardize: bool
    seed: int

    @property
    def member_names(self) -> list[str]:
        """A name for each member, for metrics and reports."""
        return [member.name for group in self.groups for member in group.members]

    def without(self, name: str) -> Self:
        """The bank without this member."""
        groups = []
        for group in self.groups:
            left = tuple(member for member in group.members if member.name != name)
            if left:
                groups.append(dataclasses.replace(group, members=left))
        return dataclasses.replace(self, groups=tuple(groups))

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint keeps it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; a wrong name or type is refused."""
        groups = tuple(
            GroupSpec(**{**group, "members": tuple(MemberSpec(**member) for member in group["members"])})
            for group in kept["groups"]
        )
        return cls(**{**kept, "groups": groups})
