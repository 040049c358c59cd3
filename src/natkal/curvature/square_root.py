"""A root of the covariance: positive definite by construction, safe in float32."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from natkal import linalg
from natkal.curvature.base import Alone, Prior, Response, Update
from natkal.curvature.dense import check_directions
from natkal.curvature.innovation import conditioned
from natkal.curvature.kernels import RootKernel, best_root, size_of
from natkal.curvature.limits import largest_variance
from natkal.curvature.prior import KeptPrior, keep_prior, renew, respond_with_prior, with_prior_rows
from natkal.typing import Array, Float


class SquareRootState(NamedTuple):
    """Z with Z Z' = P as its kernel keeps it, the prior if it is kept, and the variance forgetting may reach."""

    root: Any
    prior: KeptPrior | None
    limit: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class SquareRoot(Alone):
    """Potter's form, r columns at a time; build it with `square_root`."""

    factored: ClassVar[bool] = False
    prior_directions: int
    kernel: str | None = None

    def kernel_for(self, size: int) -> RootKernel:
        """What keeps and moves Z for so many parameters, here."""
        return best_root(self.kernel, size)

    def init(self, prior: Prior) -> SquareRootState:
        """A root of P_0."""
        if prior.cov is None:
            raise ValueError("prior_cov: square-root curvature needs a prior covariance, got None (a diffuse start)")
        root = jnp.diag(jnp.sqrt(prior.cov)) if prior.cov.ndim == 1 else linalg.cholesky(prior.cov).triangle()
        limit = largest_variance(prior.cov)
        return SquareRootState(self.kernel_for(len(root)).start(root, limit), keep_prior(prior), limit)

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
        kernel = self.kernel_for(rows.shape[1])
        renewal = renew(state.prior, keep, restore, self.prior_directions)
        stacked = with_prior_rows(renewal, rows)
        settled = kernel.settle(state.root, len(stacked))
        held = kernel.held(settled, state.limit)
        shadows = kernel.forward(settled, stacked if held is None else stacked * held[None])
        before = shadows @ shadows.T
        gram = before / keep
        answer = respond_with_prior(renewal, gram, respond, offset)
        solved = conditioned(answer, gram)
        images = kernel.back(settled, shadows) / keep
        images = images if held is None else images * held[None]
        left = solved.change @ images
        shifted = jnp.eye(len(solved.root), dtype=gram.dtype) + solved.root
        right = linalg.triangular(shifted).whiten(answer.factor.T) @ shadows / jnp.sqrt(keep)
        roomy = settled if len(left) <= len(stacked) else kernel.settle(settled, len(left))
        learned = kernel.learn(roomy, left, right, keep, held)
        return Update(
            state=state._replace(root=learned.store, prior=state.prior if renewal is None else renewal.state),
            step=solved.weights @ images,
            gram=before[-len(rows) :, -len(rows) :],
            declined=state._replace(root=learned.declined),
        )

    def transition(
        self, state: SquareRootState, jacobian: Float[Array, "p p"], noise: Float[Array, "p p"] | None
    ) -> SquareRootState:
        """A root of F P F' + Q: the triangular factor of [F Z, Q^1/2]."""
        moved = jacobian @ self._root(state)
        if noise is not None:
            added = linalg.semidefinite(noise).triangle()
            moved = linalg.triangular_root(jnp.concatenate([moved, added], axis=1).T).T
        none = jnp.full_like(state.limit, jnp.inf)
        return SquareRootState(self.kernel_for(len(moved)).start(moved, none), state.prior, none)

    def solve(self, state: SquareRootState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """Z (Z' vector)."""
        kernel = self.kernel_for(len(vector))
        return kernel.back(state.root, kernel.forward(state.root, vector[None]))[0]

    def quadratic(self, state: SquareRootState, rows: Float[Array, "m p"]) -> Float[Array, "m m"]:
        """(rows Z)(rows Z)'."""
        shadows = self.kernel_for(rows.shape[1]).forward(state.root, rows)
        return shadows @ shadows.T

    def to_dense(self, state: SquareRootState) -> Float[Array, "p p"]:
        """Z Z'."""
        root = self._root(state)
        return root @ root.T

    def sample(self, state: SquareRootState, key: Array) -> Float[Array, " p"]:
        """Z times standard noise."""
        root = self._root(state)
        return root @ jax.random.normal(key, root.shape[:1], root.dtype)

    def _root(self, state: SquareRootState) -> Float[Array, "p p"]:
        """Z in full."""
        return self.kernel_for(size_of(state.root)).to_root(state.root)


def square_root(*, prior_directions: int = 8, kernel: str | None = None) -> SquareRoot:
    """A square root of the covariance matrix: what `dense` computes, positive definite whatever the rounding.

    Two reads of the root per step instead of one of the matrix. `kernel` is "immediate" or "deferred" (corrections wait
    and are folded in together); the faster one for the size unless named. `prior_directions` as in `dense`.
    """
    check_directions(prior_directions)
    if kernel not in (None, "immediate", "deferred"):
        raise ValueError(f"kernel: must be 'immediate' or 'deferred' for a square root, got {kernel!r}")
    return SquareRoot(prior_directions=prior_directions, kernel=kernel)
