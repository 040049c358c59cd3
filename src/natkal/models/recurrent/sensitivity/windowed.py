"""Sensitivities that drop entries: far in the past (truncated), or far in the network (SnAp). Biased, without noise."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.models.recurrent.sensitivity.base import Sensitivity, no_start
from natkal.models.recurrent.system import Local, System
from natkal.typing import Array, Float, Int


class Window(NamedTuple):
    """The last k linearisations in a ring; `head` is where the newest one lies."""

    jacobians: Float[Array, "k n n"]
    entries: Float[Array, "k r p"]
    head: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class Truncated(Sensitivity):
    """Back-propagation through the last k steps; build it with `truncated`."""

    steps: int

    def init(self, system: System, start: Float[Array, "n p"] | None) -> Window:
        """An empty past."""
        no_start("truncated", start)
        n = system.state_size
        return Window(
            jacobians=jnp.zeros((self.steps, n, n), system.dtype),
            entries=jnp.zeros((self.steps, system.rows_kept, system.size), system.dtype),
            head=jnp.zeros((), jnp.int32),
        )

    def advance(self, system: System, state: Window, local: Local) -> Window:
        """The newest step takes the place of the oldest."""
        head = (state.head + 1) % self.steps
        return Window(
            jacobians=state.jacobians.at[head].set(local.state_jacobian),
            entries=state.entries.at[head].set(local.entries),
            head=head,
        )

    def rows(self, system: System, state: Window, covectors: Float[Array, "m n"]) -> Float[Array, "m p"]:
        """Backwards in time: c G_k = c I_t + c D_t I_{t-1} + c D_t D_{t-1} I_{t-2} + ..., k terms."""

        def back(age: Array, seen: tuple[Array, Array]) -> tuple[Array, Array]:
            backward, total = seen
            at = (state.head - age) % self.steps
            return backward @ state.jacobians[at], total + system.rows(state.entries[at], backward)

        return jax.lax.fori_loop(
            0, self.steps, back, (covectors, jnp.zeros((len(covectors), system.size), system.dtype))
        )[1]

    def push(self, system: System, state: Window, step: Float[Array, " p"]) -> Float[Array, " n"]:
        """Forwards in time: v <- D v + I step, from the oldest step on."""

        def forth(index: Array, moved: Array) -> Array:
            at = (state.head + 1 + index) % self.steps
            return state.jacobians[at] @ moved + system.push(state.entries[at], step)

        return jax.lax.fori_loop(0, self.steps, forth, jnp.zeros(system.state_size, system.dtype))


@dataclasses.dataclass(frozen=True)
class Snap(Sensitivity):
    """G on the entries that n steps can reach; build it with `snap`."""

    steps: int

    def init(self, system: System, start: Float[Array, "n p"] | None) -> Float[Array, "q p"]:
        """Zero, on the kept entries only."""
        no_start("snap", start)
        return jnp.zeros((self._pattern(system).shape[0], system.size), system.dtype)

    def advance(self, system: System, state: Float[Array, "q p"], local: Local) -> Float[Array, "q p"]:
        """Kept entries of D G + I, where G has no others: `v_a <- I_a + sum_b D_ab v_b` for each parameter."""
        pattern, owners = self._pattern(system), system.owners
        kept = pattern >= 0
        # D between the entries that a unit's parameters keep: (q, q) for each unit, shared by all its parameters.
        among = jax.vmap(lambda rows: local.state_jacobian[rows[:, None], rows[None, :]])(jnp.asarray(pattern.T))
        coupled = jnp.einsum("pab,bp->ap", among[owners], state)
        direct = sum(
            (pattern == leaf * system.units + np.arange(system.units)[None, :])[:, owners]
            * local.entries[leaf][None, :]
            for leaf in range(system.leaves)
        )
        return jnp.where(kept[:, owners], coupled + direct, 0)

    def rows(self, system: System, state: Float[Array, "q p"], covectors: Float[Array, "m n"]) -> Float[Array, "m p"]:
        """Covectors @ G."""
        where = self._pattern(system)[:, system.owners]
        return jnp.sum(covectors[:, where] * state[None], axis=1)

    def push(self, system: System, state: Float[Array, "q p"], step: Float[Array, " p"]) -> Float[Array, " n"]:
        """G @ step."""
        where = self._pattern(system)[:, system.owners]
        return jnp.zeros(system.state_size, state.dtype).at[where].add(state * step[None, :])

    def _pattern(self, system: System) -> np.ndarray:
        """For each unit (column), the state entries its parameters reach in n steps, padded with -1."""
        if system.owners is None:
            raise ValueError(
                "sensitivity: snap() must know which unit each parameter feeds; use a cell of nk.cells, "
                "or give yours the methods `owners` and `wiring`"
            )
        everything = np.ones((system.units, system.units), bool)
        wiring = everything if system.wiring is None else system.wiring
        reach = np.eye(system.units, dtype=bool)
        for _ in range(min(self.steps, system.units) - 1):
            reach = reach | (wiring @ reach)
        longest = int(reach.sum(axis=0).max())
        padded = np.full((longest, system.units), -1)
        for unit in range(system.units):
            reached = np.flatnonzero(reach[:, unit])
            padded[: len(reached), unit] = reached
        return np.concatenate(
            [np.where(padded >= 0, leaf * system.units + padded, -1) for leaf in range(system.leaves)]
        )


def truncated(steps: int) -> Truncated:
    """Back-propagation truncated after `steps` steps: what was further back does not count. Biased.

    Keeps the last linearisations, not the last inputs, so that with unlimited steps it is RTRL even while theta moves.
    """
    if steps < 1:
        raise ValueError(f"steps: must be at least 1, got {steps}")
    return Truncated(steps=steps)


def snap(steps: int) -> Snap:
    """SnAp-n: only the entries of G that a parameter reaches within `steps` steps are kept (Menick et al., 2020).

    snap(1) stores one number per parameter and state leaf and is exact for diagonal cells; with enough steps it is
    RTRL. Biased otherwise.
    """
    if steps < 1:
        raise ValueError(f"steps: must be at least 1, got {steps}")
    return Snap(steps=steps)
