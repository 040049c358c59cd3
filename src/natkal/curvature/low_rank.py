"""A diagonal plus a few directions: (rank + 1) p numbers."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature.base import Prior
from natkal.curvature.innovation import correction
from natkal.curvature.limits import least_precision
from natkal.curvature.projected import Look, Projected, diagonal_of, needs_prior, precision
from natkal.linalg import eigenvectors, inverse
from natkal.rows import Rows, dense_rows
from natkal.typing import Array, Float


class LowRankState(NamedTuple):
    """Lambda = diag(diagonal) + W' W, W of `rank` rows; the diagonal of Lambda_0 if it is kept; the least diagonal."""

    diagonal: Float[Array, " p"]
    directions: Float[Array, "rank p"]
    prior: Float[Array, " p"] | None
    least: Float[Array, ""]


class Inner(NamedTuple):
    """Inner products in the metric diag(1/diagonal) of the stacked [W; rows], and `L^-1`, L L' = I + W D^-1 W'."""

    stacked: Float[Array, "n n"]
    change: Float[Array, "rank rank"]


@dataclasses.dataclass(frozen=True)
class LowRank(Projected[LowRankState]):
    """The directions that matter most, relative to the diagonal, are kept in full; build it with `low_rank`."""

    rank: int

    def init(self, prior: Prior) -> LowRankState:
        """The diagonal of Lambda_0 and no direction yet."""
        diagonal = diagonal_of(precision(needs_prior(prior, "low-rank")))
        return LowRankState(
            diagonal=diagonal,
            directions=jnp.zeros((min(self.rank, len(diagonal)), len(diagonal)), diagonal.dtype),
            prior=None if prior.kept is None else diagonal_of(precision(prior.kept)),
            least=least_precision(diagonal),
        )

    def fade(self, state: LowRankState, keep: Float[Array, ""], restore: Float[Array, ""] | None) -> LowRankState:
        """Exact down to `least`: both parts fade alike, and the prior is part of the diagonal."""
        diagonal = jnp.maximum(keep * state.diagonal, state.least)
        if state.prior is not None and restore is not None:
            diagonal = diagonal + restore * state.prior
        return state._replace(diagonal=diagonal, directions=jnp.sqrt(keep) * state.directions)

    def prior_product(self, state: LowRankState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """Lambda_0 vector."""
        assert state.prior is not None
        return state.prior * vector

    def look(self, state: LowRankState, rows: Rows) -> Look:
        """Rows P rows' = rows D^-1 rows' - (rows D^-1 W') (I + W D^-1 W')^-1 (W D^-1 rows')."""
        rank = len(state.directions)
        both = jnp.concatenate([state.directions, dense_rows(rows)])
        stacked = (both / state.diagonal[None, :]) @ both.T
        change = correction(stacked[:rank, :rank], jnp.eye(rank, dtype=stacked.dtype))
        cross = change @ stacked[:rank, rank:]
        return Look(gram=stacked[rank:, rank:] - cross.T @ cross, images=Inner(stacked=stacked, change=change))

    def move(self, state: LowRankState, rows: Rows, images: Inner, weights: Float[Array, " m"]) -> Float[Array, " p"]:
        """P rows' weights."""
        rank = len(state.directions)
        seen = images.change.T @ (images.change @ (images.stacked[:rank, rank:] @ weights))
        return (weights @ dense_rows(rows) - seen @ state.directions) / state.diagonal

    def absorb(
        self,
        state: LowRankState,
        rows: Rows,
        look: Look,
        factor: Float[Array, "m r"],
        change: Float[Array, "r m"],
    ) -> LowRankState:
        """[W; V'] turned until its rows are orthogonal in the metric D^-1: the longest stay, the rest joins D."""
        rank = len(state.directions)
        corner = jnp.zeros((rank, factor.shape[1]), factor.dtype)
        mix = jnp.block(
            [[jnp.eye(rank, dtype=factor.dtype), corner], [jnp.zeros((len(rows), rank), factor.dtype), factor]]
        )
        turn = eigenvectors(mix.T @ look.images.stacked @ mix)
        turned = (mix @ turn).T @ jnp.concatenate([state.directions, dense_rows(rows)])
        directions, dropped = turned[:rank], turned[rank:]
        return state._replace(diagonal=state.diagonal + jnp.sum(dropped**2, axis=0), directions=directions)

    def solve(self, state: LowRankState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """P vector."""
        return self.move(state, vector[None], self.look(state, vector[None]).images, jnp.ones(1, vector.dtype))

    def to_dense(self, state: LowRankState) -> Float[Array, "p p"]:
        """The inverse of diag(diagonal) + W'W."""
        return inverse(jnp.diag(state.diagonal) + state.directions.T @ state.directions)

    def sample(self, state: LowRankState, key: Array) -> Float[Array, " p"]:
        """One draw from N(0, P): P times a draw from N(0, Lambda)."""
        key_diagonal, key_directions = jax.random.split(key)
        noise = jax.random.normal(key_diagonal, state.diagonal.shape, state.diagonal.dtype)
        along = jax.random.normal(key_directions, state.directions.shape[:1], state.diagonal.dtype)
        return self.solve(state, jnp.sqrt(state.diagonal) * noise + along @ state.directions)


def low_rank(rank: int) -> LowRank:
    """A diagonal precision plus `rank` directions in full.

    What an observation adds in other directions is kept by its diagonal. Exact once `rank` is at least the number of
    parameters, or of directions ever observed.
    """
    if rank < 1:
        raise ValueError(f"rank: must be at least 1, got {rank}")
    return LowRank(rank=rank)
