"""Sensitivities of cells in which no unit reads another: a trace for each parameter and state leaf, and no matrix."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from natkal.models.recurrent.sensitivity.base import Sensitivity, no_start
from natkal.models.recurrent.system import Local, System
from natkal.typing import Array, Float

Trace = Float[Array, "..."]
"""d s_i / d w for each weight w of one parameter leaf, i the unit that w feeds: one number for each state leaf."""


@dataclasses.dataclass(frozen=True)
class DiagonalSensitivity(Sensitivity):
    """The entries of G that are not zero, where each unit's state depends on its own weights alone.

    D = d cell/d s is then a small matrix D_u for each unit u (2 x 2 for a complex one), and each weight of the unit has
    a trace e <- D_u e + d s_u'/d w: Def. 11 without its zeros. Build it with `diagonal`.
    """

    def init(self, system: System, start: Float[Array, "n p"] | None) -> tuple[Trace, ...]:
        """G_0 = 0."""
        no_start("diagonal", start)
        return tuple(jnp.zeros((system.leaves, *leaf.shape), system.dtype) for leaf in _fed(system))

    def advance(self, system: System, state: tuple[Trace, ...], local: Local) -> tuple[Trace, ...]:
        """e_a <- sum_b D_ab e_b + d s_a'/d w, for state leaves a and b."""
        direct = local.own_entries
        return tuple(
            jnp.stack(
                [
                    sum(
                        (leaf.spread(local.own_jacobian[a, b]) * trace[b] for b in range(system.leaves)),
                        direct[leaf.number][a],
                    )
                    for a in range(system.leaves)
                ]
            )
            for leaf, trace in zip(_fed(system), state, strict=True)
        )

    def rows(self, system: System, state: tuple[Trace, ...], covectors: Float[Array, "m n"]) -> Float[Array, "m p"]:
        """Covectors @ G."""
        count = len(covectors)
        per_leaf = covectors.reshape(count, system.leaves, system.units)
        parts = [jnp.zeros((count, int(np.prod(shape))), system.dtype) for shape in system.shapes]
        for leaf, trace in zip(_fed(system), state, strict=True):
            along = (leaf.spread(per_leaf[:, a]) * trace[a][None] for a in range(system.leaves))
            parts[leaf.number] = sum(along, jnp.zeros((), system.dtype)).reshape(count, -1)
        return jnp.concatenate(parts, axis=1)

    def push(self, system: System, state: tuple[Trace, ...], step: Float[Array, " p"]) -> Float[Array, " n"]:
        """G @ step."""
        moved = jnp.zeros((system.leaves, system.units), system.dtype)
        for leaf, trace in zip(_fed(system), state, strict=True):
            own = step[leaf.start : leaf.start + int(np.prod(leaf.shape))].reshape(-1, system.units)
            each = trace.reshape(system.leaves, -1, system.units)
            moved = moved + jnp.einsum("lru,ru->lu", each, own)
        return moved.ravel()


class Fed(NamedTuple):
    """A parameter leaf that feeds units, by its last axis: its number, where it starts, its shape."""

    number: int
    start: int
    shape: tuple[int, ...]
    units: int

    def spread(self, values: Float[Array, "*m units"]) -> Array:
        """A number for each unit, laid along the leaf's last axis."""
        wide = jnp.tile(values, (1,) * (values.ndim - 1) + (self.shape[-1] // self.units,))
        return wide.reshape(*values.shape[:-1], *(1,) * (len(self.shape) - 1), self.shape[-1])


def _fed(system: System) -> tuple[Fed, ...]:
    """The leaves that feed units; an error where a unit reads another one."""
    owners = system.owners
    if owners is None or not system.is_diagonal:
        raise ValueError(
            "sensitivity: diagonal() is exact only where no unit reads another; use nk.cells.lru, rtu or diagonal, "
            "or sensitivity=nk.sensitivity.rtrl() for this cell"
        )
    leaves, start = [], 0
    for number, shape in enumerate(system.shapes):
        size = int(np.prod(shape))
        own = owners[start : start + size].reshape(shape)
        if (own >= 0).any():
            if (own != np.arange(shape[-1]) % system.units).any():
                raise ValueError("sensitivity: diagonal() needs parameters whose last axis counts the units")
            leaves.append(Fed(number=number, start=start, shape=shape, units=system.units))
        start += size
    return tuple(leaves)


def diagonal() -> DiagonalSensitivity:
    """Exact RTRL at the cost of the forward pass, for cells in which no unit reads another.

    One number is kept for each parameter and state leaf, where RTRL keeps n for each parameter.
    """
    return DiagonalSensitivity()
