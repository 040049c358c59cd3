"""One variance per parameter: p numbers."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature.base import Prior
from natkal.curvature.limits import least_precision
from natkal.curvature.projected import (
    Look,
    Projected,
    combine,
    diagonal_of,
    needs_prior,
    precision,
    squares,
    weighted_gram,
)
from natkal.curvature.units import Layers, find_layers
from natkal.rows import Rows
from natkal.typing import Array, Float


class DiagonalState(NamedTuple):
    """The diagonal of Lambda leaf by leaf (inputs, units), that of Lambda_0 if it is kept, and the least it may be."""

    precision: tuple[Float[Array, "_ _"], ...]
    prior: tuple[Float[Array, "_ _"], ...] | None
    layers: Layers
    least: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class Diagonal(Projected[DiagonalState]):
    """Projection on the diagonal, of the precision or of the covariance; build it with `diagonal`."""

    decoupled: bool

    def init(self, prior: Prior) -> DiagonalState:
        """The diagonal of Lambda_0, or of P_0 where covariances are what is projected."""
        layers = find_layers(prior.layout)
        start = self._project(layers, needs_prior(prior, "diagonal"))
        return DiagonalState(
            precision=start,
            prior=None if prior.kept is None else self._project(layers, prior.kept),
            layers=layers,
            least=least_precision(layers.flat(start)),
        )

    def _project(self, layers: Layers, cov: Array) -> tuple[Float[Array, "_ _"], ...]:
        return layers.by_leaf(1 / diagonal_of(cov) if self.decoupled else diagonal_of(precision(cov)))

    def fade(self, state: DiagonalState, keep: Float[Array, ""], restore: Float[Array, ""] | None) -> DiagonalState:
        """Exact down to `least`: the prior's diagonal is kept as it is."""
        faded = tuple(jnp.maximum(keep * own, state.least) for own in state.precision)
        if state.prior is not None and restore is not None:
            faded = tuple(own + restore * base for own, base in zip(faded, state.prior, strict=True))
        return state._replace(precision=faded)

    def prior_product(self, state: DiagonalState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """Lambda_0 vector."""
        assert state.prior is not None
        return state.layers.flat(state.prior) * vector

    def look(self, state: DiagonalState, rows: Rows) -> Look:
        """Leaves add up."""
        leaves = [piece.outer(rows) or piece.matrices(rows) for piece in state.layers.pieces]
        grams = [weighted_gram(leaf, 1 / own) for leaf, own in zip(leaves, state.precision, strict=True)]
        return Look(gram=sum(grams[1:], grams[0]), images=leaves)

    def move(self, state: DiagonalState, rows: Rows, images: list, weights: Float[Array, " m"]) -> Float[Array, " p"]:
        """P rows' weights."""
        return state.layers.flat(
            [combine(weights, leaf) * (1 / own) for leaf, own in zip(images, state.precision, strict=True)]
        )

    def absorb(
        self, state: DiagonalState, rows: Rows, look: Look, factor: Float[Array, "m r"], change: Float[Array, "r m"]
    ) -> DiagonalState:
        """Lambda_ii + (V V')_ii; or, decoupled, 1 / (P - U'U)_ii."""
        posterior = []
        for own, leaf in zip(state.precision, look.images, strict=True):
            if self.decoupled:
                # 1 / (P - P^2 x) = Lambda / (1 - x / Lambda), with x = (rows' change' change rows)_ii < Lambda exactly
                lost = squares(change.T, leaf) / own
                posterior.append(own / jnp.maximum(1 - lost, jnp.finfo(lost.dtype).eps))
            else:
                posterior.append(own + squares(factor, leaf))
        return state._replace(precision=tuple(posterior))

    def embed(self, state: DiagonalState, larger: DiagonalState, places: Any) -> DiagonalState:
        """The old precisions in their places, those of the prior elsewhere."""
        whole = larger.layers.flat(larger.precision).at[places].set(state.layers.flat(state.precision))
        return larger._replace(precision=larger.layers.by_leaf(whole))

    def solve(self, state: DiagonalState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """P vector."""
        return vector / state.layers.flat(state.precision)

    def to_dense(self, state: DiagonalState) -> Float[Array, "p p"]:
        """P as a full matrix."""
        return jnp.diag(1 / state.layers.flat(state.precision))

    def sample(self, state: DiagonalState, key: Array) -> Float[Array, " p"]:
        """One draw from N(0, P)."""
        flat = state.layers.flat(state.precision)
        return jax.random.normal(key, flat.shape, flat.dtype) / jnp.sqrt(flat)


def diagonal(*, decoupled: bool = False) -> Diagonal:
    """A variance for each parameter, all independent.

    By default the diagonal of the precision is kept: the closest independent law in KL(q || posterior), the variational
    one. `decoupled` keeps that of the covariance instead: each parameter's own marginal, the fully decoupled filter.
    """
    return Diagonal(decoupled=decoupled)
