"""The seam of G = d s / d theta, and its two ends: exact (RTRL), and none of the past."""

import dataclasses
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp

from natkal.models.recurrent.system import Entries, Local, System
from natkal.typing import Array, Float


@runtime_checkable
class Sensitivity(Protocol):
    """How the derivative of the state with respect to the parameters is carried along; see this folder's README."""

    def init(self, system: System, start: Float[Array, "n p"] | None) -> Any:
        """G_0: `start`, or zero where None."""
        ...

    def advance(self, system: System, state: Any, local: Local) -> Any:
        """G <- d cell / d theta + d cell / d s G   (Def. 11), or an estimate of it."""
        ...

    def rows(self, system: System, state: Any, covectors: Float[Array, "m n"]) -> Float[Array, "m p"]:
        """Covectors @ G."""
        ...

    def push(self, system: System, state: Any, step: Float[Array, " p"]) -> Float[Array, " n"]:
        """G @ step."""
        ...


@dataclasses.dataclass(frozen=True)
class Rtrl:
    """The whole matrix G, exactly; build it with `rtrl`."""

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
        """G - left @ right: what an observation of an uncertain state does to G (Lemma 14)."""
        return state - left @ right


@dataclasses.dataclass(frozen=True)
class Immediate:
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


def no_start(name: str, start: Array | None) -> None:
    """Refuse an initial state that depends on the parameters, which only the exact G can start from."""
    if start is not None:
        raise ValueError(f"state: a function of the parameters needs sensitivity=rtrl(), got {name}()")


def rtrl() -> Rtrl:
    """Real-time recurrent learning (Def. 11): the exact derivative of the state, n p numbers, n^2 p products."""
    return Rtrl()


def immediate() -> Immediate:
    """No history: only the last step's direct dependence on the parameters. Biased; the baseline for all others."""
    return Immediate()
