"""Sensitivities of rank one, or one Kronecker product: random, unbiased, with O(p) numbers instead of n p."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from natkal.models.base import ravel_rows
from natkal.models.recurrent.sensitivity.base import Sensitivity, no_start
from natkal.models.recurrent.system import Local, System
from natkal.typing import Array, Float


class RankOne(NamedTuple):
    """G is estimated by the outer product of `states` (n) and `params` (p)."""

    key: Array
    states: Float[Array, " n"]
    params: Float[Array, " p"]


@dataclasses.dataclass(frozen=True)
class _RankOneSensitivity(Sensitivity):
    seed: ArrayLike

    def init(self, system: System, start: Float[Array, "n p"] | None) -> RankOne:
        """Zero: exact."""
        no_start(type(self).__name__.lower(), start)
        return RankOne(
            key=jax.random.key(self.seed),
            states=jnp.zeros(system.state_size, system.dtype),
            params=jnp.zeros(system.size, system.dtype),
        )

    def rows(self, system: System, state: RankOne, covectors: Float[Array, "m n"]) -> Float[Array, "m p"]:
        """(Covectors @ states) outer params."""
        return (covectors @ state.states)[:, None] * state.params[None, :]

    def push(self, system: System, state: RankOne, step: Float[Array, " p"]) -> Float[Array, " n"]:
        """States (params . step)."""
        return state.states * (state.params @ step)


@dataclasses.dataclass(frozen=True)
class Uoro(_RankOneSensitivity):
    """Unbiased online recurrent optimisation; build it with `uoro`."""

    def advance(self, system: System, state: RankOne, local: Local) -> RankOne:
        """s~ <- rho_0 D s~ + rho_1 nu, theta~ <- theta~/rho_0 + nu' I/rho_1, signs nu (Tallec & Ollivier 2017)."""
        key, draw = jax.random.split(state.key)
        signs = jax.random.rademacher(draw, (system.state_size,), system.dtype)
        carried, injected = local.push_state(state.states), local.pull(signs[None])[0]
        rho_0 = _balance(jnp.linalg.norm(state.params), jnp.linalg.norm(carried))
        rho_1 = _balance(jnp.linalg.norm(injected), jnp.linalg.norm(signs))
        return RankOne(
            key=key,
            states=rho_0 * carried + rho_1 * signs,
            params=state.params / rho_0 + injected / rho_1,
        )


@dataclasses.dataclass(frozen=True)
class NoBackTrack(_RankOneSensitivity):
    """A sign and a scale for each unit and one for the past; build it with `nobacktrack`."""

    def advance(self, system: System, state: RankOne, local: Local) -> RankOne:
        """v <- rho_0 eps_0 D v + sum_i rho_i eps_i e_i, w <- eps_0 w/rho_0 + sum_i eps_i I_i/rho_i."""
        key, draw = jax.random.split(state.key)
        signs = jax.random.rademacher(draw, (system.state_size + 1,), system.dtype)
        carried = local.push_state(state.states)
        rho_0 = _balance(jnp.linalg.norm(state.params), jnp.linalg.norm(carried))
        squares = system.push(jnp.square(local.entries), jnp.ones(system.size, system.dtype))
        rho = _balance(jnp.sqrt(squares), jnp.ones_like(squares))
        return RankOne(
            key=key,
            states=signs[0] * rho_0 * carried + signs[1:] * rho,
            params=signs[0] * state.params / rho_0 + system.rows(local.entries, (signs[1:] / rho)[None])[0],
        )


class Kronecker(NamedTuple):
    """For each group of weights, G is estimated by `before` (what the weights multiply) times `after` (n, outputs)."""

    key: Array
    before: tuple[Any, ...]
    after: tuple[Float[Array, "n z"], ...]


@dataclasses.dataclass(frozen=True)
class KroneckerRtrl(Sensitivity):
    """One Kronecker product per weight matrix; build it with `kronecker_rtrl`."""

    seed: ArrayLike

    def init(self, system: System, start: Float[Array, "n p"] | None) -> Kronecker:
        """Zero: exact."""
        no_start("kronecker_rtrl", start)
        groups = self._groups(system)
        return Kronecker(
            key=jax.random.key(self.seed),
            before=tuple(
                jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[:-1], system.dtype), group) for group in groups
            ),
            after=tuple(
                jnp.zeros((system.state_size, jax.tree.leaves(group)[0].shape[-1]), system.dtype) for group in groups
            ),
        )

    def advance(self, system: System, state: Kronecker, local: Local) -> Kronecker:
        """a~ <- e_1 rho_1 a~ + e_2 rho_2 a, A <- e_1 D A/rho_1 + e_2 (ds'/dz)/rho_2, signs e."""
        key, draw = jax.random.split(state.key)
        signs = jax.random.rademacher(draw, (len(state.after), 2), system.dtype)
        factors = system.cell.factors(local.params, system.unravel_state(local.state), local.inputs)  # type: ignore[attr-defined]
        before, after = [], []
        for sign, old_before, old_after, (new_before, new_after) in zip(
            signs, state.before, state.after, factors, strict=True
        ):
            carried = local.state_jacobian @ old_after
            rho_1 = _balance(jnp.linalg.norm(carried), _tree_norm(old_before))
            rho_2 = _balance(jnp.linalg.norm(new_after), _tree_norm(new_before))
            keep, add = sign[0] * rho_1, sign[1] * rho_2
            before.append(
                jax.tree.map(lambda old, new, keep=keep, add=add: keep * old + add * new, old_before, new_before)
            )
            after.append(sign[0] * carried / rho_1 + sign[1] * new_after / rho_2)
        return Kronecker(key=key, before=tuple(before), after=tuple(after))

    def rows(self, system: System, state: Kronecker, covectors: Float[Array, "m n"]) -> Float[Array, "m p"]:
        """Covectors @ A, times what the weights multiply."""
        leaves: dict[str, Array] = {}
        for before, after in zip(state.before, state.after, strict=True):
            outputs = covectors @ after
            for name, factor in before.items():
                leaves[name] = jnp.einsum("...,mz->m...z", factor, outputs)
        zeros = jax.tree.map(lambda leaf: jnp.zeros((len(covectors), *leaf.shape), system.dtype), system.params)
        return ravel_rows({**zeros, "cell": {**zeros["cell"], **leaves}})

    def push(self, system: System, state: Kronecker, step: Float[Array, " p"]) -> Float[Array, " n"]:
        """A applied to what the step adds to each preactivation."""
        moved = ravel_pytree(system.params)[1](step)["cell"]
        total = jnp.zeros(system.state_size, system.dtype)
        for before, after in zip(state.before, state.after, strict=True):
            added = sum(jnp.tensordot(factor, moved[name], axes=factor.ndim) for name, factor in before.items())
            total = total + after @ added
        return total

    def _groups(self, system: System) -> tuple[Any, ...]:
        groups = getattr(system.cell, "groups", None)
        if groups is None or not groups:
            raise ValueError(
                "sensitivity: kronecker_rtrl() needs a cell whose weights are matrices applied to known vectors; "
                "use nk.cells.tanh, leaky, linear, gru or lstm with full wiring"
            )
        return tuple({name: system.params["cell"][name] for name in group} for group in groups)


def _balance(top: Array, bottom: Array) -> Array:
    """sqrt(top / bottom), which equalises the norms of both factors; 1 where either is zero, and any value is right."""
    good = (top > 0) & (bottom > 0)
    return jnp.sqrt(jnp.where(good, top, 1) / jnp.where(good, bottom, 1))


def _tree_norm(tree: Any) -> Array:
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))


def uoro(seed: ArrayLike = 0) -> Uoro:
    """Unbiased online recurrent optimisation: G as one random outer product, O(p) per step (Tallec & Ollivier 2017)."""
    return Uoro(seed=seed)


def nobacktrack(seed: ArrayLike = 0) -> NoBackTrack:
    """NoBackTrack: as UORO, with a scale of its own for every unit (Ollivier, Tallec & Charpiat 2015). Unbiased."""
    return NoBackTrack(seed=seed)


def kronecker_rtrl(seed: ArrayLike = 0) -> KroneckerRtrl:
    """Kronecker-factored RTRL: n^2 numbers per weight matrix instead of n p (Mujika et al. 2018).

    Unbiased. Only for cells whose weights are matrices applied to known vectors: all of `nk.cells` but the diagonal.
    """
    return KroneckerRtrl(seed=seed)
