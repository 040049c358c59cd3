"""The precision in triangular form: float64, exact with a kept prior, and able to start from no prior at all."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature.base import Alone, Prior, Response, Update
from natkal.curvature.innovation import attenuated
from natkal.curvature.prior import prior_root
from natkal.typing import Array, Bool, Float

UNKNOWN = 1e30
"""The variance reported for a direction that nothing has been observed of."""
ROUNDING = 1e-13
"""An entry of R this small next to its column is rounding."""


class InformationState(NamedTuple):
    """Upper triangular R with R'R = Lambda, and where it puts the mean: R moved = whitened.

    `moved` is the sum of all steps. `whitened` is the right-hand side that the same rotations gave; it keeps the digits
    that `moved` lost to rounding. `prior` holds the rows of Lambda_0's root if the prior is kept.
    """

    root: Float[Array, "p p"]
    whitened: Float[Array, " p"]
    moved: Float[Array, " p"]
    prior: Float[Array, "p p"] | None


@dataclasses.dataclass(frozen=True)
class Information(Alone):
    """The square-root information filter (Lemma 9 by QR); build it with `information`.

    The step Lambda^-1 rows' e is the least-squares solution of one system. With a whitened push w, F w = e, and x the
    parameters' displacement since the start, x_0 so far,

        | sqrt(keep) R |       | sqrt(keep) z     |                  | R_new |       | z_new |
        |              |  x =  |                  |    becomes by QR |       |  x =  |       |
        |    F' rows   |       | w + F' rows x_0  |                  |   0   |       |  ...  |

    Its normal equations are Lambda_new x = keep R'z + rows' e + rows' F F' rows x_0, and R x_0 = z, so that
    x - x_0 = Lambda_new^-1 rows' e. Solving R_new x = z_new needs the condition number of R once; the seminormal
    equations R'R step = rows' e need it squared, and their errors stay in the parameters for good.
    """

    factored: ClassVar[bool] = False

    def init(self, prior: Prior) -> InformationState:
        """A root of Lambda_0; zero where nothing is known."""
        dtype = jnp.result_type(float) if prior.cov is None else prior.cov.dtype
        if dtype != jnp.float64:
            raise ValueError(
                f"information: needs float64 parameters, got {dtype}; a precision matrix in float32 stops growing "
                'after 2^24 observations. Turn on jax.config.update("jax_enable_x64", True)'
            )
        nothing, origin = jnp.zeros((prior.size, prior.size)), jnp.zeros(prior.size)
        return InformationState(
            root=nothing if prior.cov is None else _absorbed(nothing, _as_matrix(prior_root(prior.cov))),
            whitened=origin,
            moved=origin,
            prior=None if prior.kept is None else _as_matrix(prior_root(prior.kept)),
        )

    def update(
        self,
        state: InformationState,
        rows: Float[Array, "m p"],
        respond: Callable[[Float[Array, "m m"]], Response],
        keep: Float[Array, ""],
        restore: Float[Array, ""] | None = None,
        offset: Float[Array, " p"] | None = None,
    ) -> Update:
        """One QR of the system above; a kept prior adds sqrt(restore) R_0 x = sqrt(restore) R_0 (x_0 - offset)."""
        predicted = _faded(state, keep)
        faded_gram = gram = _quadratic(predicted[:, :-1], rows)
        if state.prior is not None and restore is not None and offset is not None:
            prior = jnp.sqrt(restore) * state.prior
            predicted = _absorbed(predicted, _beside(prior, prior @ (state.moved - offset)))
            gram = _quadratic(predicted[:, :-1], rows)
        answer = respond(gram)
        factor, push = answer.factor, answer.push
        whitened_push, rest = _whitened(factor, push)
        whitened_rows = factor.T @ rows
        system = _absorbed(predicted, _beside(whitened_rows, whitened_push + whitened_rows @ state.moved))
        root, whitened = system[:, :-1], system[:, -1]
        # The part of the push outside the range of F (a sampled Fisher matrix) has no whitened form: R'z = rows' rest.
        added, step = _solved(root, rest @ rows, whitened - root @ state.moved)
        return Update(
            state=InformationState(root=root, whitened=whitened + added, moved=state.moved + step, prior=state.prior),
            step=step,
            gram=keep * faded_gram,
        )

    def solve(self, state: InformationState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """Lambda^-1 vector; along unknown directions, nothing."""
        return _solved(state.root, vector, jnp.zeros_like(vector))[1]

    def quadratic(self, state: InformationState, rows: Float[Array, "m p"]) -> Float[Array, "m m"]:
        """Rows Lambda^-1 rows'; huge along unknown directions."""
        return _quadratic(state.root, rows)

    def to_dense(self, state: InformationState) -> Float[Array, "p p"]:
        """Lambda^-1."""
        return _quadratic(state.root, jnp.eye(len(state.root), dtype=state.root.dtype))

    def sample(self, state: InformationState, key: Array) -> Float[Array, " p"]:
        """R^-1 times standard noise, once every parameter has been observed."""
        noise = jax.random.normal(key, state.root.shape[:1], state.root.dtype)
        return _back(state.root, noise[:, None])[:, 0]


def _as_matrix(root: Array) -> Array:
    return jnp.diag(root) if root.ndim == 1 else root


def _beside(matrix: Float[Array, "n p"], vector: Float[Array, " n"]) -> Float[Array, "n q"]:
    return jnp.concatenate([matrix, vector[:, None]], axis=1)


def _faded(state: InformationState, keep: Float[Array, ""]) -> Float[Array, "p q"]:
    """sqrt(keep) [R z]; a row that has faded below a variance of `UNKNOWN` is forgotten, so that none overflows."""
    faded = jnp.sqrt(keep) * _beside(state.root, state.whitened)
    gone = jnp.max(jnp.abs(faded[:, :-1]), axis=1) < UNKNOWN**-0.5
    return jnp.where(gone[:, None], 0.0, faded)


def _whitened(factor: Float[Array, "m r"], push: Float[Array, " m"]) -> tuple[Float[Array, " r"], Float[Array, " m"]]:
    """A whitened push w with F w = push as far as F reaches, and the rest, push - F w."""
    if factor.shape == (1, 1):
        known = factor != 0
        whitened = jnp.where(known, push / jnp.where(known, factor, 1.0)[0], 0.0)[0]
        return whitened, push - factor[:, 0] * whitened
    # F'(F F' + 1/t)^-1 push for a large t; once more on what is left.
    t = 1e12 / jnp.maximum(jnp.sum(jnp.square(factor)), 1e-200)
    gram = t * jnp.eye(len(factor), dtype=factor.dtype)
    first = t * factor.T @ attenuated(gram, factor, push)
    whitened = first + t * factor.T @ attenuated(gram, factor, push - factor @ first)
    return whitened, push - factor @ whitened


def _absorbed(triangle: Float[Array, "p q"], rows: Float[Array, "r q"]) -> Float[Array, "p q"]:
    """The triangular factor of [triangle; rows] by Householder reflections, one column at a time: r p q operations.

    Columns from p on are right-hand sides. A row of the triangle is zero where nothing is known yet; what is rounding
    next to its column does not fill it.
    """
    size = len(triangle)
    lengths = jnp.hypot(_lengths(triangle[:, :size]), _lengths(rows[:, :size]))

    def reflect(rows: Array, at: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        column, row, scale = at
        corner, below = row[column], rows[:, column]
        beyond = jnp.sqrt(jnp.sum(jnp.square(below)))
        nothing_new = (corner == 0) & (beyond <= ROUNDING * scale)
        length = jnp.where(nothing_new, 1.0, jnp.hypot(corner, beyond))
        # H = I - u u' / (length |pivot|) with u = (pivot, below) takes (corner, below) to (-+ length, 0).
        pivot = corner + jnp.where(corner < 0, -length, length)
        along = jnp.where(nothing_new, 0.0, (pivot * row + below @ rows) / (length * jnp.abs(pivot)))
        rows = (rows - below[:, None] * along[None, :]).at[:, column].set(0.0)
        return rows, row - pivot * along

    return jax.lax.scan(reflect, rows, (jnp.arange(size), triangle, lengths))[1]


def _is_full_rank(root: Float[Array, "p p"]) -> Bool[Array, ""]:
    """Whether every parameter has been observed: no diagonal entry is rounding next to its own column."""
    return jnp.all(jnp.abs(jnp.diagonal(root)) > ROUNDING * _lengths(root))


def _lengths(columns: Float[Array, "n p"]) -> Float[Array, " p"]:
    return jnp.sqrt(jnp.sum(jnp.square(columns), axis=0))


def _back(root: Float[Array, "p p"], right: Float[Array, "p m"]) -> Float[Array, "p m"]:
    """R^-1 right, the last entry first; zero where the diagonal is."""
    size = len(root)

    def one(count: Array, solved: Array) -> Array:
        return _next_entry(solved, right, size - 1 - count, root[size - 1 - count], root)

    return jax.lax.fori_loop(0, size, one, jnp.zeros_like(right))


def _forward(root: Float[Array, "p p"], right: Float[Array, "p m"]) -> Float[Array, "p m"]:
    """R^-T right, the first entry first; zero where the diagonal is."""

    def one(index: Array, solved: Array) -> Array:
        return _next_entry(solved, right, index, root[:, index], root)

    return jax.lax.fori_loop(0, len(root), one, jnp.zeros_like(right))


def _next_entry(solved: Array, right: Array, index: Array, coefficients: Array, root: Array) -> Array:
    corner = root[index, index]
    value = (right[index] - coefficients @ solved) / jnp.where(corner == 0, 1.0, corner)
    return solved.at[index].set(jnp.where(corner == 0, 0.0, value))


class _Orthogonal(NamedTuple):
    """R = U' Q': U upper triangular, Q with orthonormal columns; where R is singular some rows of U and Q' are zero."""

    upper: Float[Array, "p p"]
    basis: Float[Array, "p p"]


def _orthogonal(root: Float[Array, "p p"]) -> _Orthogonal:
    """The complete orthogonal decomposition of a singular R, by the same reflections: [R' I] becomes [U Q']."""
    size = len(root)
    system = jnp.concatenate([root.T, jnp.eye(size, dtype=root.dtype)], axis=1)
    full = _absorbed(jnp.zeros_like(system), system)
    return _Orthogonal(upper=full[:, :size], basis=full[:, size:].T)


def _solved(
    root: Float[Array, "p p"], gradient: Float[Array, " p"], whitened: Float[Array, " p"]
) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
    """h = R^-T gradient and R^-1 (h + whitened); the shortest vectors while some directions are still unknown."""

    def known() -> tuple[Array, Array]:
        half = _forward(root, gradient[:, None])[:, 0]
        return half, _back(root, (half + whitened)[:, None])[:, 0]

    def partly_known() -> tuple[Array, Array]:
        parts = _orthogonal(root)
        half = _back(parts.upper, (gradient @ parts.basis)[:, None])[:, 0]
        return half, parts.basis @ _forward(parts.upper, (half + whitened)[:, None])[:, 0]

    return jax.lax.cond(_is_full_rank(root), known, partly_known)


def _quadratic(root: Float[Array, "p p"], rows: Float[Array, "m p"]) -> Float[Array, "m m"]:
    def known() -> Array:
        half = _forward(root, rows.T)
        return half.T @ half

    def partly_known() -> Array:
        parts = _orthogonal(root)
        along = parts.basis.T @ rows.T
        half, unseen = _back(parts.upper, along), rows.T - parts.basis @ along
        unseen = jnp.where(_lengths(unseen) > ROUNDING * _lengths(rows.T), unseen, 0.0)
        return half.T @ half + UNKNOWN * (unseen.T @ unseen)

    return jax.lax.cond(_is_full_rank(root), known, partly_known)


def information() -> Information:
    """The precision matrix of the parameters, as a triangular root kept by QR: p^2 per row and step, float64 only.

    Starts from nothing with `prior_cov=None`, and keeps the prior of `prior_weight` exactly (Prop. 4), at p^3 per step.
    Switch to a cheaper form once every parameter has been observed: `nk.switch(state, learner, cheaper)`.
    """
    return Information()
