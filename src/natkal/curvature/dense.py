"""The full covariance matrix: exact, p^2 numbers."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature.base import Prior, Response, Update
from natkal.curvature.innovation import attenuated, correction
from natkal.curvature.prior import KeptPrior, keep_prior, renew, respond_with_prior, with_prior_rows
from natkal.typing import Array, Float


class DenseState(NamedTuple):
    """The covariance P, and the prior if it is kept."""

    cov: Float[Array, "p p"]
    prior: KeptPrior | None


@dataclasses.dataclass(frozen=True)
class Dense:
    """The covariance form of Def. 5 without its R^-1; build it with `dense`."""

    prior_directions: int

    def init(self, prior: Prior) -> DenseState:
        """P_0."""
        if prior.cov is None:
            raise ValueError("prior_cov: dense curvature needs a prior covariance, got None (a diffuse start)")
        cov = jnp.diag(prior.cov) if prior.cov.ndim == 1 else prior.cov
        return DenseState(cov=cov, prior=keep_prior(prior))

    def update(
        self,
        state: DenseState,
        rows: Float[Array, "m p"],
        respond: Callable[[Float[Array, "m m"]], Response],
        keep: Float[Array, ""],
        restore: Float[Array, ""] | None = None,
        offset: Float[Array, " p"] | None = None,
    ) -> Update:
        """P <- P/keep - U'U, reading P once for the products with all rows."""
        renewal = renew(state.prior, keep, restore, self.prior_directions)
        stacked = with_prior_rows(renewal, rows)
        images = stacked @ state.cov
        before = images @ stacked.T
        gram = before / keep
        factor, push = respond_with_prior(renewal, gram, respond, offset)
        down = correction(gram, factor) @ images / keep
        return Update(
            state=DenseState(
                cov=state.cov / keep - down.T @ down, prior=state.prior if renewal is None else renewal.state
            ),
            step=attenuated(gram, factor, push) @ images / keep,
            gram=before[-len(rows) :, -len(rows) :],
        )

    def transition(
        self, state: DenseState, jacobian: Float[Array, "p p"], noise: Float[Array, "p p"] | None
    ) -> DenseState:
        """P <- F P F' + Q   (Def. 5, transition step)."""
        moved = jacobian @ state.cov @ jacobian.T
        return DenseState(cov=moved if noise is None else moved + noise, prior=state.prior)

    def solve(self, state: DenseState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """P vector."""
        return state.cov @ vector

    def quadratic(self, state: DenseState, rows: Float[Array, "m p"]) -> Float[Array, "m m"]:
        """Rows P rows'."""
        return rows @ state.cov @ rows.T

    def to_dense(self, state: DenseState) -> Float[Array, "p p"]:
        """P, as stored."""
        return state.cov

    def sample(self, state: DenseState, key: Array) -> Float[Array, " p"]:
        """One draw from N(0, P)."""
        return jnp.linalg.cholesky(state.cov) @ jax.random.normal(key, state.cov.shape[:1], state.cov.dtype)


def check_directions(prior_directions: int) -> None:
    """At least one direction of a kept prior must be renewed per step."""
    if prior_directions < 1:
        raise ValueError(f"prior_directions: must be at least 1, got {prior_directions}")


def dense(*, prior_directions: int = 8) -> Dense:
    """The full covariance matrix of the parameters.

    `prior_directions` matters with `prior_weight` only: how many directions of the kept prior are renewed at each step.
    With at least p of them Prop. 4 is exact, at a cost of p^3; with fewer, a step costs p^2 and the stored precision
    lacks at most a share `1 - (1 - fading)^(p / prior_directions)` of the prior.
    """
    check_directions(prior_directions)
    return Dense(prior_directions=prior_directions)
