"""The two ends: G in full, exactly (RTRL), and none of the past."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from natkal.models.recurrent.sensitivity.base import Sensitivity, no_start
from natkal.models.recurrent.system import Entries, Local, System
from natkal.typing import Array, Float


@dataclasses.dataclass(frozen=True)
class Rtrl(Sensitivity):
    """The whole matrix G, exactly; build it with `rtrl`."""

    full: ClassVar[bool] = True

    def init(self, system: System, start: Float[Array, "n p"] | None) -> Float[Array, "n p"]:
        """G_0."""
        shape = (system.state_size, system.size)
        return jnp.zeros(shape, system.dtype) if start is None else start

    def advance(self, system: System, state: Float[Array, "n p"], local: Local) -> Float[Array, "n p"]:
        """The one product of size n x p, and the immediate part added where it is not zero."""
        return local.state_jacobian @ state + system.expand(local.entries)

    def rows(self, system: System, state: Float[Array, "n p"], covectors: Float[Array, "m n"]) -> Float[Array, "m p"]:
        """Covectors @ G."""
        return covectors @ state

    def push(self, system: System, state: Float[Array, "n p"], step: Float[Array, " p"]) -> Float[Array, " n"]:
        """G @ step."""
        return state @ step

    def condition(
        self, state: Float[Array, "n p"], left: Float[Array, "n r"], right: Float[Array, "r p"]
    ) -> Float[Array, "n p"]:
        """G - left @ right."""
        return state - left @ right


@dataclasses.dataclass(frozen=True)
class Immediate(Sensitivity):
    """G = d cell / d theta of the last step alone; build it with `immediate`."""

    def init(self, system: System, start: Float[Array, "n p"] | None) -> Entries:
        """Nothing yet."""
        no_start("immediate", start)
        return jnp.zeros((system.rows_kept, system.size), system.dtype)

    def advance(self, system: System, state: Entries, local: Local) -> Entries:
        """The past is dropped."""
        return local.entries

    def rows(self, system: System, state: Entries, covectors: Float[Array, "m n"]) -> Float[Array, "m p"]:
        """Covectors @ d cell / d theta."""
        return system.rows(state, covectors)

    def push(self, system: System, state: Entries, step: Float[Array, " p"]) -> Float[Array, " n"]:
        """d cell / d theta @ step."""
        return system.push(state, step)


def rtrl() -> Rtrl:
    """Real-time recurrent learning (Def. 11): the exact derivative of the state, n p numbers, n^2 p products."""
    return Rtrl()


def immediate() -> Immediate:
    """No history: only the last step's direct dependence on the parameters. Biased; the baseline for all others."""
    return Immediate()
