"""One variance per parameter: p numbers."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature.base import Prior
from natkal.curvature.projected import (
    Look,
    Projected,
    combine,
    diagonal_of,
    inner_products,
    needs_prior,
    precision,
    squares,
)
from natkal.typing import Array, Float


class DiagonalState(NamedTuple):
    """The diagonal of Lambda, and of Lambda_0 if the prior is kept."""

    precision: Float[Array, " p"]
    prior: Float[Array, " p"] | None


@dataclasses.dataclass(frozen=True)
class Diagonal(Projected[DiagonalState]):
    """Projection on the diagonal, of the precision or of the covariance; build it with `diagonal`."""

    decoupled: bool

    def init(self, prior: Prior) -> DiagonalState:
        """The diagonal of Lambda_0, or of P_0 where covariances are what is projected."""
        return DiagonalState(
            precision=self._project(needs_prior(prior, "diagonal")),
            prior=None if prior.kept is None else self._project(prior.kept),
        )

    def _project(self, cov: Array) -> Float[Array, " p"]:
        return 1 / diagonal_of(cov) if self.decoupled else diagonal_of(precision(cov))

    def fade(self, state: DiagonalState, keep: Float[Array, ""], restore: Float[Array, ""] | None) -> DiagonalState:
        """Exact: the prior's diagonal is kept as it is."""
        faded = keep * state.precision
        if state.prior is not None and restore is not None:
            faded = faded + restore * state.prior
        return DiagonalState(precision=faded, prior=state.prior)

    def prior_product(self, state: DiagonalState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """Lambda_0 vector."""
        assert state.prior is not None
        return state.prior * vector

    def look(self, state: DiagonalState, rows: Float[Array, "m p"]) -> Look:
        """Rows scaled by the variances."""
        images = rows * (1 / state.precision)[None, :]
        return Look(gram=inner_products(images, rows), images=images)

    def move(
        self, state: DiagonalState, rows: Float[Array, "m p"], images: Array, weights: Float[Array, " m"]
    ) -> Float[Array, " p"]:
        """P rows' weights."""
        return combine(weights, images)

    def absorb(
        self,
        state: DiagonalState,
        rows: Float[Array, "m p"],
        look: Look,
        factor: Float[Array, "m r"],
        change: Float[Array, "r m"],
    ) -> DiagonalState:
        """Lambda_ii + (V V')_ii; or, decoupled, 1 / (P - U'U)_ii."""
        if not self.decoupled:
            return DiagonalState(precision=state.precision + squares(factor, rows), prior=state.prior)
        # 1 / (P - sum u^2) = Lambda / (1 - Lambda sum u^2), with Lambda sum u^2 < 1 in exact arithmetic
        lost = state.precision * squares(change.T, look.images)
        floor = jnp.finfo(lost.dtype).eps
        return DiagonalState(precision=state.precision / jnp.maximum(1 - lost, floor), prior=state.prior)

    def solve(self, state: DiagonalState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """P vector."""
        return vector / state.precision

    def to_dense(self, state: DiagonalState) -> Float[Array, "p p"]:
        """P as a full matrix."""
        return jnp.diag(1 / state.precision)

    def sample(self, state: DiagonalState, key: Array) -> Float[Array, " p"]:
        """One draw from N(0, P)."""
        return jax.random.normal(key, state.precision.shape, state.precision.dtype) / jnp.sqrt(state.precision)


def diagonal(*, decoupled: bool = False) -> Diagonal:
    """A variance for each parameter, all independent.

    By default the diagonal of the precision is kept: the closest independent law in KL(q || posterior), the variational
    one. `decoupled` keeps that of the covariance instead: each parameter's own marginal, the fully decoupled filter.
    """
    return Diagonal(decoupled=decoupled)
