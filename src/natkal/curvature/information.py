"""The precision in triangular form: float64, exact with a kept prior, and able to start from no prior at all."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature.base import Prior, Response, Update
from natkal.curvature.prior import prior_root
from natkal.typing import Array, Bool, Float

UNKNOWN = 1e30
"""The variance reported for a direction that nothing has been observed of."""


class InformationState(NamedTuple):
    """Upper triangular R with R'R = Lambda, and the rows of Lambda_0's root if the prior is kept."""

    root: Float[Array, "p p"]
    prior: Float[Array, "p p"] | None


@dataclasses.dataclass(frozen=True)
class Information:
    """The information filter of Lemma 9 by QR; build it with `information`."""

    factored: ClassVar[bool] = False

    def init(self, prior: Prior) -> InformationState:
        """A root of Lambda_0; zero where nothing is known."""
        dtype = jnp.result_type(float) if prior.cov is None else prior.cov.dtype
        if dtype != jnp.float64:
            raise ValueError(
                f"information: needs float64 parameters, got {dtype}; a precision matrix in float32 stops growing "
                'after 2^24 observations. Turn on jax.config.update("jax_enable_x64", True)'
            )
        size = prior.size
        root = jnp.zeros((size, size)) if prior.cov is None else _triangular(_as_matrix(prior_root(prior.cov)))
        return InformationState(root=root, prior=None if prior.kept is None else _as_matrix(prior_root(prior.kept)))

    def update(
        self,
        state: InformationState,
        rows: Float[Array, "m p"],
        respond: Callable[[Float[Array, "m m"]], Response],
        keep: Float[Array, ""],
        restore: Float[Array, ""] | None = None,
        offset: Float[Array, " p"] | None = None,
    ) -> Update:
        """R <- the triangular factor of [sqrt(keep) R; sqrt(restore) R_0; F' rows]; step = R^-1 R^-T gradient."""
        faded = jnp.sqrt(keep) * state.root
        predicted, pull = faded, jnp.zeros(rows.shape[1], rows.dtype)
        if state.prior is not None and restore is not None and offset is not None:
            predicted = _triangular(jnp.concatenate([faded, jnp.sqrt(restore) * state.prior]))
            pull = restore * (state.prior.T @ (state.prior @ offset))
        factor, push = respond(_quadratic(predicted, rows))
        root = _triangular(jnp.concatenate([predicted, factor.T @ rows]))
        return Update(
            state=InformationState(root=root, prior=state.prior),
            step=_solve(root, push @ rows - pull),
            gram=_quadratic(state.root, rows),
        )

    def solve(self, state: InformationState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """Lambda^-1 vector; along unknown directions, nothing."""
        return _solve(state.root, vector)

    def quadratic(self, state: InformationState, rows: Float[Array, "m p"]) -> Float[Array, "m m"]:
        """Rows Lambda^-1 rows'; huge along unknown directions."""
        return _quadratic(state.root, rows)

    def to_dense(self, state: InformationState) -> Float[Array, "p p"]:
        """Lambda^-1."""
        return _quadratic(state.root, jnp.eye(len(state.root), dtype=state.root.dtype))

    def sample(self, state: InformationState, key: Array) -> Float[Array, " p"]:
        """R^-1 times standard noise, once every parameter has been observed."""
        noise = jax.random.normal(key, state.root.shape[:1], state.root.dtype)
        return jax.scipy.linalg.solve_triangular(state.root, noise)


def is_full_rank(root: Float[Array, "p p"]) -> Bool[Array, ""]:
    """Whether every parameter has been observed: no diagonal entry is rounding next to its own column."""
    lengths = jnp.sqrt(jnp.sum(jnp.square(root), axis=0))
    return jnp.all(jnp.abs(jnp.diagonal(root)) > 1e-13 * lengths) & jnp.all(lengths > 0)


def _as_matrix(root: Array) -> Array:
    return jnp.diag(root) if root.ndim == 1 else root


def _triangular(stacked: Float[Array, "n p"]) -> Float[Array, "p p"]:
    return jnp.linalg.qr(stacked, mode="r")


def _solve(root: Float[Array, "p p"], vector: Float[Array, " p"]) -> Float[Array, " p"]:
    """R^-1 R^-T vector; the shortest such step while some directions are still unknown."""

    def known() -> Array:
        half = jax.scipy.linalg.solve_triangular(root, vector, trans=1)
        return jax.scipy.linalg.solve_triangular(root, half)

    def partly_known() -> Array:
        inverse_values, vectors = _inverse_squares(root, unknown=0.0)
        return vectors.T @ (inverse_values * (vectors @ vector))

    return jax.lax.cond(is_full_rank(root), known, partly_known)


def _quadratic(root: Float[Array, "p p"], rows: Float[Array, "m p"]) -> Float[Array, "m m"]:
    def known() -> Array:
        half = jax.scipy.linalg.solve_triangular(root, rows.T, trans=1)
        return half.T @ half

    def partly_known() -> Array:
        inverse_values, vectors = _inverse_squares(root, unknown=UNKNOWN)
        half = jnp.sqrt(inverse_values)[:, None] * (vectors @ rows.T)
        return half.T @ half

    return jax.lax.cond(is_full_rank(root), known, partly_known)


def _inverse_squares(root: Float[Array, "p p"], unknown: float) -> tuple[Float[Array, " p"], Float[Array, "p p"]]:
    _, values, vectors = jnp.linalg.svd(root)
    seen = values > 1e-14 * len(values) * jnp.maximum(values[0], jnp.finfo(values.dtype).tiny)
    return jnp.where(seen, 1 / jnp.square(jnp.where(seen, values, 1.0)), unknown), vectors


def information() -> Information:
    """The precision matrix of the parameters, as a triangular root kept by QR: p^3 per step, float64 only.

    Starts from nothing with `prior_cov=None`, and keeps the prior of `prior_weight` exactly (Prop. 4). Switch to a
    cheaper form once every parameter has been observed: `nk.switch(state, learner, cheaper)`.
    """
    return Information()
