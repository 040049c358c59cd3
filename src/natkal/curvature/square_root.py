"""A root of the covariance: positive definite by construction, safe in float32."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature.base import Prior, Response, Update
from natkal.curvature.dense import check_directions
from natkal.curvature.innovation import attenuated, innovation_root, lower_solve
from natkal.curvature.prior import KeptPrior, keep_prior, renew, respond_with_prior, with_prior_rows
from natkal.typing import Array, Float


class SquareRootState(NamedTuple):
    """Z with Z Z' = P, and the prior if it is kept."""

    root: Float[Array, "p p"]
    prior: KeptPrior | None


@dataclasses.dataclass(frozen=True)
class SquareRoot:
    """Potter's form, r columns at a time; build it with `square_root`."""

    prior_directions: int

    def init(self, prior: Prior) -> SquareRootState:
        """A root of P_0."""
        if prior.cov is None:
            raise ValueError("prior_cov: square-root curvature needs a prior covariance, got None (a diffuse start)")
        root = jnp.diag(jnp.sqrt(prior.cov)) if prior.cov.ndim == 1 else jnp.linalg.cholesky(prior.cov)
        return SquareRootState(root=root, prior=keep_prior(prior))

    def update(
        self,
        state: SquareRootState,
        rows: Float[Array, "m p"],
        respond: Callable[[Float[Array, "m m"]], Response],
        keep: Float[Array, ""],
        restore: Float[Array, ""] | None = None,
        offset: Float[Array, " p"] | None = None,
    ) -> Update:
        """Z <- Z - (Z Phi') L^-T (I + L)^-1 Phi with Phi = F' rows Z and L L' = I + Phi Phi': then Z Z' = P - U'U."""
        renewal = renew(state.prior, keep, restore, self.prior_directions)
        stacked = with_prior_rows(renewal, rows)
        shadows = stacked @ state.root
        before = shadows @ shadows.T
        gram = before / keep
        factor, push = respond_with_prior(renewal, gram, respond, offset)
        images = shadows @ state.root.T / keep
        lower = innovation_root(gram, factor)
        identity = jnp.eye(len(lower), dtype=lower.dtype)
        left = lower_solve(lower, factor.T @ images)
        right = lower_solve(identity + lower, factor.T @ shadows) / jnp.sqrt(keep)
        return Update(
            state=SquareRootState(
                root=state.root / jnp.sqrt(keep) - left.T @ right,
                prior=state.prior if renewal is None else renewal.state,
            ),
            step=attenuated(gram, factor, push) @ images,
            gram=before[-len(rows) :, -len(rows) :],
        )

    def transition(
        self, state: SquareRootState, jacobian: Float[Array, "p p"], noise: Float[Array, "p p"] | None
    ) -> SquareRootState:
        """A root of F P F' + Q: the triangular factor of [F Z, Q^1/2]."""
        moved = jacobian @ state.root
        if noise is not None:
            values, vectors = jnp.linalg.eigh(noise)
            added = vectors * jnp.sqrt(jnp.maximum(values, 0.0))[None, :]
            moved = jnp.linalg.qr(jnp.concatenate([moved, added], axis=1).T, mode="r").T
        return SquareRootState(root=moved, prior=state.prior)

    def solve(self, state: SquareRootState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """Z (Z' vector)."""
        return state.root @ (state.root.T @ vector)

    def quadratic(self, state: SquareRootState, rows: Float[Array, "m p"]) -> Float[Array, "m m"]:
        """(rows Z)(rows Z)'."""
        shadows = rows @ state.root
        return shadows @ shadows.T

    def to_dense(self, state: SquareRootState) -> Float[Array, "p p"]:
        """Z Z'."""
        return state.root @ state.root.T

    def sample(self, state: SquareRootState, key: Array) -> Float[Array, " p"]:
        """Z times standard noise."""
        return state.root @ jax.random.normal(key, state.root.shape[:1], state.root.dtype)


def square_root(*, prior_directions: int = 8) -> SquareRoot:
    """A square root of the covariance matrix: what `dense` computes, positive definite whatever the rounding.

    Two reads of the root per step instead of one of the matrix. `prior_directions` as in `dense`.
    """
    check_directions(prior_directions)
    return SquareRoot(prior_directions=prior_directions)
