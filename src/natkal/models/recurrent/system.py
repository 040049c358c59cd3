"""A recurrent cell on flat vectors, and its linearisation: all that a sensitivity may know of it."""

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from natkal.models.base import flat_size, ravel, ravel_rows
from natkal.typing import Array, Float, Params

Entries = Float[Array, "r p"]
"""d cell / d theta without its zeros: `(n, p)` in general, one row per state leaf where owners are known."""


@dataclasses.dataclass(frozen=True, eq=False)
class System:
    """`s' = cell(theta, s, u)` with s a flat vector of n numbers and theta of p.

    `owners` says, for each of the p parameters, which unit it feeds (-1: none), where the cell declares it. The
    state then consists of `leaves` vectors with one number per unit, and d cell / d theta has one nonzero number per
    parameter and leaf: only those are ever computed. `wiring` says which unit (row) reads which (column).
    """

    cell: Callable[[Params, Any, Any], Any]
    params: Params
    state: Any
    owners: np.ndarray | None
    wiring: np.ndarray | None

    @cached_property
    def size(self) -> int:
        """p."""
        return flat_size(self.params)

    @cached_property
    def state_size(self) -> int:
        """n."""
        return flat_size(self.state)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the parameters' leaves."""
        return tuple(np.shape(leaf) for leaf in jax.tree.leaves(self.params))

    @property
    def dtype(self) -> jnp.dtype:
        """Of the parameters, and of every sensitivity."""
        return jnp.result_type(*jax.tree.leaves(self.params))

    @property
    def leaves(self) -> int:
        """How many vectors the state is made of: two for an LSTM."""
        return len(jax.tree.leaves(self.state))

    @property
    def units(self) -> int:
        """How many units the cell has: n / leaves."""
        return self.state_size // self.leaves

    @cached_property
    def is_diagonal(self) -> bool:
        """Whether the cell declares that no unit reads another."""
        if self.owners is None or self.wiring is None:
            return False
        return np.array_equal(self.wiring, np.eye(self.units, dtype=bool))

    @property
    def rows_kept(self) -> int:
        """r: how many numbers per parameter d cell / d theta is stored with."""
        return self.state_size if self.owners is None else self.leaves

    def unravel_state(self, flat: Float[Array, " n"]) -> Any:
        """A flat state as the user's pytree."""
        return ravel_pytree(self.state)[1](flat)

    def step(self, params: Params, state: Float[Array, " n"], inputs: Any) -> Float[Array, " n"]:
        """The cell on a flat state."""
        following = self.cell(params, self.unravel_state(state), inputs)
        if jax.tree.map(jnp.shape, following) != jax.tree.map(jnp.shape, self.state):
            given, expected = jax.tree.map(jnp.shape, following), jax.tree.map(jnp.shape, self.state)
            raise ValueError(f"cell: returns a state of shape {given}, the initial state has {expected}")
        return ravel(following).astype(state.dtype)

    def linearize(self, params: Params, state: Float[Array, " n"], inputs: Any) -> "Local":
        """The cell around (params, state), for one input."""
        return Local(self, params, state, inputs)

    # -- d cell / d theta from its entries ----------------------------------------------------------------------------

    def expand(self, entries: Entries) -> Float[Array, "n p"]:
        """The full matrix."""
        if self.owners is None:
            return entries
        mine = self.owners[None, :] == np.arange(self.units)[:, None]
        return jnp.concatenate([jnp.where(mine, row[None, :], 0) for row in entries])

    def rows(self, entries: Entries, covectors: Float[Array, "m n"]) -> Float[Array, "m p"]:
        """Covectors @ d cell / d theta."""
        if self.owners is None:
            return covectors @ entries
        per_leaf = covectors.reshape(len(covectors), self.leaves, self.units)
        return jnp.sum(per_leaf[:, :, self.owners] * entries[None], axis=1)

    def push(self, entries: Entries, step: Float[Array, " p"]) -> Float[Array, " n"]:
        """d cell / d theta @ step."""
        if self.owners is None:
            return entries @ step
        moved = jnp.zeros((self.leaves, self.units), entries.dtype).at[:, self.owners].add(entries * step[None, :])
        return moved.ravel()


@dataclasses.dataclass(frozen=True, eq=False)
class Local:
    """The cell's first-order expansion, each part computed when asked for: `s'(theta + d, s + e) = s' + I d + D e`."""

    system: System
    params: Params
    state: Float[Array, " n"]
    inputs: Any

    @cached_property
    def _primal(self) -> tuple[Array, Callable[[Array], tuple[Params, Array]]]:
        return jax.vjp(lambda params, s: self.system.step(params, s, self.inputs), self.params, self.state)

    @property
    def next_state(self) -> Float[Array, " n"]:
        """s' itself."""
        return self._primal[0]

    @cached_property
    def state_jacobian(self) -> Float[Array, "n n"]:
        """D = d cell / d s."""
        identity = jnp.eye(self.system.state_size, dtype=self.state.dtype)
        return jax.vmap(lambda row: self._primal[1](row)[1])(identity)

    def push_state(self, tangent: Float[Array, " n"]) -> Float[Array, " n"]:
        """D @ tangent, by one forward pass."""
        return jax.jvp(lambda s: self.system.step(self.params, s, self.inputs), (self.state,), (tangent,))[1]

    def pull(self, covectors: Float[Array, "m n"]) -> Float[Array, "m p"]:
        """Covectors @ d cell / d theta, by one backward pass each."""
        return ravel_rows(jax.vmap(lambda row: self._primal[1](row)[0])(covectors))

    @cached_property
    def entries(self) -> Entries:
        """d cell / d theta: n backward passes, or one per state leaf where owners are known."""
        if self.system.owners is None:
            return self.pull(jnp.eye(self.system.state_size, dtype=self.state.dtype))
        return ravel_rows(self._by_leaf[0])

    # -- where owners are known ---------------------------------------------------------------------------------------

    @cached_property
    def _by_leaf(self) -> tuple[Params, Float[Array, "leaves n"]]:
        """One backward pass for each state leaf, from a covector of ones on it."""
        ones = np.repeat(np.eye(self.system.leaves), self.system.units, axis=1)
        return jax.vmap(self._primal[1])(jnp.asarray(ones, self.state.dtype))

    @property
    def own_entries(self) -> list[Array]:
        """`entries`, parameter leaf by parameter leaf."""
        return jax.tree.leaves(self._by_leaf[0])

    @property
    def own_jacobian(self) -> Float[Array, "leaves leaves units"]:
        """D of each unit, from state leaf (second) to state leaf (first), where no unit reads another."""
        leaves, units = self.system.leaves, self.system.units
        return self._by_leaf[1].reshape(leaves, leaves, units)
