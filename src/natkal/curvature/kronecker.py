"""A Kronecker product per layer: (inputs^2 + units^2) numbers, whatever the layer does with its weights."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature.base import Prior
from natkal.curvature.innovation import correction
from natkal.curvature.projected import Look, Projected, needs_prior, precision
from natkal.curvature.units import Layers, find_layers
from natkal.typing import Array, Bool, Float, Int


class Factors(NamedTuple):
    """Lambda = scale (A x D) / trace on one layer: A over its inputs, D over its units, tr A = tr D = trace."""

    left: Float[Array, "n n"]
    right: Float[Array, "u u"]
    trace: Float[Array, ""]
    left_inverse: Float[Array, "n n"]
    right_inverse: Float[Array, "u u"]
    scale: Float[Array, ""]


class KroneckerState(NamedTuple):
    """The factors of each layer, those of Lambda_0 if the prior is kept, and the observations so far (it may wrap)."""

    factors: tuple[Factors, ...]
    prior: tuple[Factors, ...] | None
    count: Int[Array, ""]
    layers: Layers


class Thin(NamedTuple):
    """Rows of one layer as outer products y x', where `holds`; elsewhere y and x mean nothing."""

    holds: Bool[Array, ""]
    left: Float[Array, "m n"]
    right: Float[Array, "m u"]


@dataclasses.dataclass(frozen=True)
class Kronecker(Projected[KroneckerState]):
    """Projection of each layer's precision on a Kronecker product, by partial traces; build it with `kronecker`.

    With Lambda seen as a tensor (input i, unit a, input j, unit b): A = sum_a Lambda_iaja, D = sum_i Lambda_iaib, and
    Lambda ~ A x D / tr Lambda. It is exact on products, so fading and a prior with one variance per input lose nothing; it
    keeps the trace; and it is linear, so that sums of Fisher matrices need no more than sums of A and of D.

    For one observation a dense layer's rows are outer products y x', whatever the library: then nothing costs more than
    m (n^2 + u^2 + n u). It is tested on the numbers; other rows (convolutions, recurrent cells) take the general path, m n u (n + u).
    """

    refresh: int

    def init(self, prior: Prior) -> KroneckerState:
        """Partial traces of Lambda_0."""
        layers = find_layers(prior.layout)
        factors = _partial_traces(layers, precision(needs_prior(prior, "Kronecker")))
        kept = None if prior.kept is None else _partial_traces(layers, precision(prior.kept))
        return KroneckerState(factors=factors, prior=kept, count=jnp.zeros((), jnp.int32), layers=layers)

    def fade(self, state: KroneckerState, keep: Float[Array, ""], restore: Float[Array, ""] | None) -> KroneckerState:
        """A scalar; with a kept prior the factors are inverted anew, at a cost of n^3 + u^3."""
        if state.prior is None or restore is None:
            factors = tuple(own._replace(scale=keep * own.scale) for own in state.factors)
        else:
            factors = tuple(
                _factors(
                    left=keep * own.scale * own.left + restore * base.left,
                    right=keep * own.scale * own.right + restore * base.right,
                    trace=keep * own.scale * own.trace + restore * base.trace,
                )
                for own, base in zip(state.factors, state.prior, strict=True)
            )
        return KroneckerState(factors=factors, prior=state.prior, count=state.count, layers=state.layers)

    def prior_product(self, state: KroneckerState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """Lambda_0 vector."""
        assert state.prior is not None
        parts = [
            (base.left @ stack[0] @ base.right / base.trace)[None]
            for base, stack in zip(state.prior, state.layers.split(vector[None]), strict=True)
        ]
        return state.layers.join(parts)[0]

    def look(self, state: KroneckerState, rows: Float[Array, "m p"]) -> Look:
        """Layers add up; outer products have (y A^-1 y) (x D^-1 x)."""
        gram = jnp.zeros((len(rows), len(rows)), rows.dtype)
        images = []
        for own, stack in zip(state.factors, state.layers.split(rows), strict=True):
            thin = _thin(stack)
            gram = gram + jax.lax.cond(thin.holds, _thin_gram, _full_gram, own, thin, stack)
            images.append((thin, stack))
        return Look(gram=gram, images=images)

    def move(
        self,
        state: KroneckerState,
        rows: Float[Array, "m p"],
        images: list[tuple[Thin, Array]],
        weights: Float[Array, " m"],
    ) -> Float[Array, " p"]:
        """P rows' weights = A^-1 (sum_k weights_k row_k) D^-1 trace / scale."""
        parts = [
            jax.lax.cond(thin.holds, _thin_move, _full_move, own, thin, stack, weights)[None]
            for own, (thin, stack) in zip(state.factors, images, strict=True)
        ]
        return state.layers.join(parts)[0]

    def absorb(
        self,
        state: KroneckerState,
        rows: Float[Array, "m p"],
        look: Look,
        factor: Float[Array, "m r"],
        change: Float[Array, "r m"],
    ) -> KroneckerState:
        """A + sum_r V_r V_r', D + sum_r V_r' V_r."""
        due = (state.count + 1) % self.refresh == 0
        factors = []
        for own, (thin, stack) in zip(state.factors, look.images, strict=True):
            updated = jax.lax.cond(thin.holds, _thin_absorb, _full_absorb, own, thin, stack, factor)
            factors.append(jax.lax.cond(due, _renew, lambda own: own, updated))
        return KroneckerState(
            factors=tuple(factors), prior=state.prior, count=(state.count + 1) % self.refresh, layers=state.layers
        )

    def solve(self, state: KroneckerState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """P vector."""
        parts = [
            _apply(own, stack[0])[None]
            for own, stack in zip(state.factors, state.layers.split(vector[None]), strict=True)
        ]
        return state.layers.join(parts)[0]

    def to_dense(self, state: KroneckerState) -> Float[Array, "p p"]:
        """P as a full matrix."""
        size = sum(piece.size for layer in state.layers.layers for piece in layer.pieces)
        return jax.vmap(lambda vector: self.solve(state, vector))(jnp.eye(size, dtype=state.factors[0].left.dtype))

    def sample(self, state: KroneckerState, key: Array) -> Float[Array, " p"]:
        """One draw from N(0, P): A^-1/2 Z D^-1/2 times sqrt(trace / scale)."""
        parts = []
        for own, key_layer in zip(state.factors, jax.random.split(key, len(state.factors)), strict=True):
            noise = jax.random.normal(key_layer, (len(own.left), len(own.right)), own.left.dtype)
            rooted = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(own.left), noise, lower=True, trans=1)
            both = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(own.right), rooted.T, lower=True, trans=1).T
            parts.append((both * jnp.sqrt(own.trace / own.scale))[None])
        return state.layers.join(parts)[0]


def _partial_traces(layers: Layers, matrix: Array) -> tuple[Factors, ...]:
    """The factors of a precision given as a diagonal or in full."""
    factors = []
    for layer in layers.layers:
        if matrix.ndim == 1:
            own = layer.matrices(matrix[None])[0]
            left, right = jnp.diag(own.sum(axis=1)), jnp.diag(own.sum(axis=0))
        else:
            columns = layer.matrices(matrix).reshape(len(matrix), -1)
            tensor = layer.matrices(columns.T).reshape(layer.inputs, layer.units, layer.inputs, layer.units)
            left, right = jnp.einsum("iaja->ij", tensor), jnp.einsum("iaib->ab", tensor)
        factors.append(_factors(left=left, right=right, trace=jnp.trace(left)))
    return tuple(factors)


def _factors(left: Float[Array, "n n"], right: Float[Array, "u u"], trace: Float[Array, ""]) -> Factors:
    return Factors(
        left=left,
        right=right,
        trace=trace,
        left_inverse=_inverse(left),
        right_inverse=_inverse(right),
        scale=jnp.ones_like(trace),
    )


def _inverse(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    identity = jnp.eye(len(matrix), dtype=matrix.dtype)
    root = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(matrix), identity, lower=True)
    return root.T @ root


def _renew(own: Factors) -> Factors:
    """Inverses computed anew, which ends the drift of their updates; kept as they are where a factor is singular."""
    fresh = _factors(left=own.left, right=own.right, trace=own.trace)
    sound = jnp.isfinite(fresh.left_inverse).all() & jnp.isfinite(fresh.right_inverse).all()
    return jax.tree.map(lambda new, old: jnp.where(sound, new, old), fresh, own)


def _apply(own: Factors, matrix: Float[Array, "n u"]) -> Float[Array, "n u"]:
    return own.left_inverse @ matrix @ own.right_inverse * (own.trace / own.scale)


def _thin(stack: Float[Array, "m n u"]) -> Thin:
    """Each matrix as an outer product y x', and whether all of them are: M z = y (x . z) for a second random z."""
    probes = jax.random.normal(jax.random.key(0), (stack.shape[2], 2), stack.dtype)
    images = stack @ probes
    along, check = images[..., 0], images[..., 1]
    largest = jnp.argmax(jnp.abs(along), axis=1)
    pivot = jnp.take_along_axis(along, largest[:, None], axis=1)
    right = jnp.take_along_axis(stack, largest[:, None, None], axis=1)[:, 0]
    left = along / jnp.where(pivot == 0, 1, pivot)
    tolerance = 1e3 * jnp.finfo(stack.dtype).eps
    missed = jnp.max(jnp.abs(check - left * (right @ probes[:, 1])[:, None]), axis=1)
    holds = jnp.all(missed <= tolerance * jnp.max(jnp.abs(right), axis=1))
    return Thin(holds=holds, left=left, right=right)


def _thin_gram(own: Factors, thin: Thin, stack: Array) -> Float[Array, "m m"]:
    lefts = thin.left @ own.left_inverse @ thin.left.T
    rights = thin.right @ own.right_inverse @ thin.right.T
    return lefts * rights * (own.trace / own.scale)


def _full_gram(own: Factors, thin: Thin, stack: Float[Array, "m n u"]) -> Float[Array, "m m"]:
    images = jnp.einsum("ij,mju,uv->miv", own.left_inverse, stack, own.right_inverse)
    return jnp.einsum("miv,kiv->mk", images, stack) * (own.trace / own.scale)


def _thin_move(own: Factors, thin: Thin, stack: Array, weights: Float[Array, " m"]) -> Float[Array, "n u"]:
    lefts = own.left_inverse @ (thin.left * weights[:, None]).T
    return lefts @ (thin.right @ own.right_inverse) * (own.trace / own.scale)


def _full_move(own: Factors, thin: Thin, stack: Float[Array, "m n u"], weights: Array) -> Float[Array, "n u"]:
    return _apply(own, jnp.einsum("m,mnu->nu", weights, stack))


def _thin_absorb(own: Factors, thin: Thin, stack: Array, factor: Float[Array, "m r"]) -> Factors:
    """V_r = sum_k F_kr y_k x_k', so sum_r V_r V_r' = Y' [(F F') o (X X')] Y, and its inverse by a rank-m correction."""
    fisher = factor @ factor.T
    left_inner, right_inner = thin.left @ thin.left.T, thin.right @ thin.right.T
    left, left_inverse = _add(own.scale, own.left, own.left_inverse, thin.left, fisher * right_inner)
    right, right_inverse = _add(own.scale, own.right, own.right_inverse, thin.right, fisher * left_inner)
    return Factors(
        left=left,
        right=right,
        trace=own.scale * own.trace + jnp.sum(fisher * left_inner * right_inner),
        left_inverse=left_inverse,
        right_inverse=right_inverse,
        scale=jnp.ones_like(own.scale),
    )


def _add(scale: Array, matrix: Array, inverse: Array, rows: Array, weight: Float[Array, "m m"]) -> tuple[Array, Array]:
    """scale M + rows' weight rows and its inverse."""
    values, vectors = jnp.linalg.eigh(weight)
    root = vectors * jnp.sqrt(jnp.maximum(values, 0))[None, :]
    images = rows @ inverse / scale
    turned = correction(images @ rows.T, root) @ images
    scaled = root.T @ rows
    return scale * matrix + scaled.T @ scaled, inverse / scale - turned.T @ turned


def _full_absorb(own: Factors, thin: Thin, stack: Float[Array, "m n u"], factor: Float[Array, "m r"]) -> Factors:
    added = jnp.einsum("mr,mnu->rnu", factor, stack)
    return _factors(
        left=own.scale * own.left + jnp.einsum("riu,rju->ij", added, added),
        right=own.scale * own.right + jnp.einsum("riu,riv->uv", added, added),
        trace=own.scale * own.trace + jnp.sum(added**2),
    )


def kronecker(*, refresh: int = 1000) -> Kronecker:
    """A Kronecker product of an input and a unit factor for each layer.

    Dense layers, convolutions (a kernel is read as a matrix from its patch to its units) and recurrent cells alike; the
    prior enters the factors, so there is no damping to set. Every `refresh` observations the factors are inverted anew
    rather than updated. Exact for a layer with one unit.
    """
    if refresh < 1:
        raise ValueError(f"refresh: must be at least 1, got {refresh}")
    return Kronecker(refresh=refresh)
