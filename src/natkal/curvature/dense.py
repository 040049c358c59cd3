"""The full covariance matrix: exact, p^2 numbers."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature import prior as kept_prior
from natkal.curvature.base import Prior, Response, Update
from natkal.curvature.innovation import correction
from natkal.curvature.prior import KeptPrior
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
        return DenseState(cov=cov, prior=kept_prior.init(prior))

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
        if state.prior is None or restore is None or offset is None:
            images = rows @ state.cov
            gram = images @ rows.T
            factor, push = respond(gram / keep)
            change = correction(gram / keep, factor)
            return Update(
                state=DenseState(cov=_downdate(state.cov, images, change, keep), prior=state.prior),
                step=_step(images, gram, change, push, keep),
                gram=gram,
            )
        # The prior's directions are pseudo-observations of l_i' theta_prior that come just before the real one.
        renewal = kept_prior.renew(state.prior, keep, restore, min(self.prior_directions, rows.shape[1]))
        count = len(renewal.weights)
        stacked = jnp.concatenate([renewal.rows, rows])
        images = stacked @ state.cov
        gram = images @ stacked.T
        prior_factor = jnp.eye(len(stacked), count, dtype=gram.dtype) * jnp.sqrt(renewal.weights)[None, :]
        prior_change = correction(gram / keep, prior_factor) @ gram / keep
        predicted = gram / keep - prior_change.T @ prior_change
        factor, push = respond(predicted[count:, count:])
        data_factor = jnp.concatenate([jnp.zeros((count, factor.shape[1]), gram.dtype), factor])
        pull = -renewal.weights * (renewal.rows @ offset)
        change = correction(gram / keep, jnp.concatenate([prior_factor, data_factor], axis=1))
        return Update(
            state=DenseState(cov=_downdate(state.cov, images, change, keep), prior=renewal.state),
            step=_step(images, gram, change, jnp.concatenate([pull, push]), keep),
            gram=gram[count:, count:],
        )

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


def _downdate(cov: Array, images: Array, change: Array, keep: Array) -> Array:
    """P/keep - U'U with U = change @ images / keep."""
    scaled = change @ images / keep
    return cov / keep - scaled.T @ scaled


def _step(images: Array, gram: Array, change: Array, push: Array, keep: Array) -> Array:
    """P_new rows' push = M' (push - change' change G push), with M = images / keep and G = gram / keep."""
    return (push - change.T @ (change @ (gram @ push / keep))) @ images / keep


def dense(*, prior_directions: int = 8) -> Dense:
    """The full covariance matrix of the parameters.

    `prior_directions` matters with `prior_weight` only: how many directions of the kept prior are renewed at each step.
    With at least p of them Prop. 4 is exact, at a cost of p^3; with fewer, a step costs p^2 and the stored precision
    lacks at most a share `1 - (1 - fading)^(p / prior_directions)` of the prior.
    """
    if prior_directions < 1:
        raise ValueError(f"prior_directions: must be at least 1, got {prior_directions}")
    return Dense(prior_directions=prior_directions)
