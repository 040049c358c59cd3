"""The diagonal plus each unit's bias row: 2p numbers, indifferent to the origin and scale of a unit's inputs."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature.base import Prior
from natkal.curvature.limits import least_precision
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
from natkal.curvature.units import Layer, Layers, find_layers
from natkal.rows import Outer, Rows
from natkal.typing import Array, Float


class Star(NamedTuple):
    """What is kept of one layer: d_i (weights, units), b_i of each weight with its unit's bias, and the bias's own c.

    A layer without biases has one that nothing depends on: b = 0, c = 1.
    """

    diagonal: Float[Array, "n u"]
    cross: Float[Array, "n u"]
    bias: Float[Array, " u"]


class QuasiDiagonalState(NamedTuple):
    """The kept entries of Lambda layer by layer, those of Lambda_0 if it is kept, and the least s_i and c may reach."""

    stars: tuple[Star, ...]
    prior: tuple[Star, ...] | None
    layers: Layers
    least: Float[Array, ""]


class Part(NamedTuple):
    """One layer's part of some rows: its weights (m, n, u) and its biases (m, u), zero where it has none.

    Weights are an `Outer` only where the biases are zero or its deltas.
    """

    weights: Float[Array, "m n u"] | Outer
    biases: Float[Array, "m u"]


@dataclasses.dataclass(frozen=True)
class QuasiDiagonal(Projected[QuasiDiagonalState]):
    """The quasi-diagonal reduction (Ollivier, Riemannian metrics for neural networks I, sec. 2.3).

    Of each unit's block only Lambda_ii = d_i, Lambda_00 = c and Lambda_0i = b_i are kept; the rest is completed by
    b_i b_j / c, the one choice for which P is zero between two weights. With r_i = b_i / c and s_i = d_i - b_i r_i, P
    has 1/s_i at weight i, -r_i/s_i between i and the bias, 1/c + sum_i r_i^2/s_i at the bias. What is kept adds up.
    """

    def init(self, prior: Prior) -> QuasiDiagonalState:
        """The kept entries of Lambda_0."""
        layers = find_layers(prior.layout)
        stars = _stars(layers, precision(needs_prior(prior, "quasi-diagonal")))
        kept = None if prior.kept is None else _stars(layers, precision(prior.kept))
        least = least_precision(jnp.concatenate([star.diagonal.reshape(-1) for star in stars]))
        return QuasiDiagonalState(stars=stars, prior=kept, layers=layers, least=least)

    def fade(
        self, state: QuasiDiagonalState, keep: Float[Array, ""], restore: Float[Array, ""] | None
    ) -> QuasiDiagonalState:
        """Exact down to `least`: the kept entries are linear in Lambda."""
        stars = tuple(_bounded(keep * star[0], keep * star[1], keep * star[2], state.least) for star in state.stars)
        if state.prior is not None and restore is not None:
            stars = jax.tree.map(lambda kept, base: kept + restore * base, stars, state.prior)
        return state._replace(stars=stars)

    def prior_product(self, state: QuasiDiagonalState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """Lambda_0 vector: s_i x_i + b_i (r . x + x_0) at weight i, c (r . x + x_0) at the bias."""
        assert state.prior is not None
        parts = []
        for star, (weights, biases) in zip(state.prior, _split_vector(state.layers, vector), strict=True):
            ratio, variance = _frame(star)
            along = _total(ratio * weights) + biases
            parts.append((weights / variance + star.cross * along[None, :], star.bias * along))
        return _join(state.layers, parts)

    def look(self, state: QuasiDiagonalState, rows: Rows) -> Look:
        """With q_i = x_i - r_i x_0 freed of the bias: sum_i q_i q_i' / s_i + x_0 x_0' / c."""
        gram = jnp.zeros((len(rows), len(rows)), rows.dtype)
        images = []
        for star, part in zip(state.stars, _split(state.layers, rows), strict=True):
            ratio, variance = _frame(star)
            if isinstance(part.weights, Outer):  # q_i = (y_i - r_i) x, as the bias's own row is x (or r = 0)
                freed = part.weights.inputs[:, None] - ratio
                scaled = freed * variance
                by_unit, deltas = _total(scaled * freed), part.weights.deltas
                gram = gram + inner_products(deltas * by_unit[None, :], deltas)
            else:
                freed = part.weights - ratio[None] * part.biases[:, None, :]
                scaled = freed * variance[None]
                gram = gram + inner_products(scaled.reshape(len(rows), -1), freed.reshape(len(rows), -1))
            gram = gram + inner_products(part.biases / star.bias[None], part.biases)
            images.append((part, ratio, scaled))
        return Look(gram=gram, images=images)

    def move(
        self,
        state: QuasiDiagonalState,
        rows: Rows,
        images: list[tuple[Part, Array, Array]],
        weights: Float[Array, " m"],
    ) -> Float[Array, " p"]:
        """P rows' weights: q_i / s_i at weight i, x_0 / c - sum_i r_i q_i / s_i at the bias."""
        parts = []
        for star, (part, ratio, scaled) in zip(state.stars, images, strict=True):
            if isinstance(part.weights, Outer):
                steps = scaled * combine(weights, part.weights.deltas)[None, :]
            else:
                steps = combine(weights, scaled)
            bias = combine(weights, part.biases) / star.bias - _total(ratio * steps)
            parts.append((steps, bias))
        return _join(state.layers, parts)

    def absorb(
        self,
        state: QuasiDiagonalState,
        rows: Rows,
        look: Look,
        factor: Float[Array, "m r"],
        change: Float[Array, "r m"],
    ) -> QuasiDiagonalState:
        """The kept entries of V V' are added."""
        stars = []
        for star, (part, _, _) in zip(state.stars, look.images, strict=True):
            biases = factor.T @ part.biases
            # sum_r V_ri V_r0 = sum_k x_ki (sum_r F_kr V_r0)
            shown = factor @ biases
            if isinstance(part.weights, Outer):
                cross = part.weights.inputs[:, None] * jnp.sum(part.weights.deltas * shown, axis=0)[None, :]
            else:
                parts = [weight * own[None, :] for weight, own in zip(part.weights, shown, strict=True)]
                cross = sum(parts[1:], parts[0])
            stars.append(
                Star(
                    diagonal=star.diagonal + squares(factor, part.weights),
                    cross=star.cross + cross,
                    bias=star.bias + jnp.sum(jnp.square(biases), axis=0),
                )
            )
        return state._replace(stars=tuple(stars))

    def solve(self, state: QuasiDiagonalState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """P vector."""
        return self.move(state, vector[None], self.look(state, vector[None]).images, jnp.ones(1, vector.dtype))

    def to_dense(self, state: QuasiDiagonalState) -> Float[Array, "p p"]:
        """P as a full matrix."""
        size = sum(piece.size for layer in state.layers.layers for piece in layer.pieces)
        identity = jnp.eye(size, dtype=state.stars[0].diagonal.dtype)
        return jax.vmap(lambda vector: self.solve(state, vector))(identity)

    def sample(self, state: QuasiDiagonalState, key: Array) -> Float[Array, " p"]:
        """One draw from N(0, P)."""
        parts = []
        for star, own_key in zip(state.stars, jax.random.split(key, len(state.stars)), strict=True):
            ratio, variance = _frame(star)
            weight_key, bias_key = jax.random.split(own_key)
            weights = jnp.sqrt(variance) * jax.random.normal(weight_key, variance.shape, variance.dtype)
            biases = jax.random.normal(bias_key, star.bias.shape, star.bias.dtype) / jnp.sqrt(star.bias)
            parts.append((weights, biases - _total(ratio * weights)))
        return _join(state.layers, parts)


def _bounded(
    diagonal: Float[Array, "n u"], cross: Float[Array, "n u"], bias: Float[Array, " u"], least: Float[Array, ""]
) -> Star:
    """Precision is added at the bias and at weights, so that neither c nor s_i falls below `least`."""
    held = jnp.maximum(bias, least)
    return Star(jnp.maximum(diagonal, least + jnp.square(cross) / held[None, :]), cross, held)


def _frame(star: Star) -> tuple[Float[Array, "n u"], Float[Array, "n u"]]:
    """r_i = b_i / c and 1 / s_i. s_i > 0 in exact arithmetic; rounding may lose what a constant input leaves of it."""
    ratio = star.cross * (1 / star.bias)[None, :]
    floor = 4 * jnp.finfo(ratio.dtype).eps * star.diagonal
    return ratio, 1 / jnp.maximum(star.diagonal - ratio * star.cross, floor)


def _total(weights: Float[Array, "n u"]) -> Float[Array, " u"]:
    """The sum over each unit's weights, as a product: a sum over the leading axis is slow."""
    return jnp.ones(len(weights), weights.dtype) @ weights


def _split(layers: Layers, rows: Rows) -> list[Part]:
    parts = []
    for layer in layers.layers:
        known = None if layer.outer(rows) is None else layer.weights.outer(rows)
        weights = layer.weights.matrices(rows) if known is None else known
        parts.append(Part(weights=weights, biases=_biases(layer, rows)))
    return parts


def _split_vector(layers: Layers, vector: Float[Array, " p"]) -> list[tuple[Float[Array, "n u"], Float[Array, " u"]]]:
    """Weights and biases of each layer."""
    return [(layer.weights.matrices(vector[None])[0], _biases(layer, vector[None])[0]) for layer in layers.layers]


def _biases(layer: Layer, rows: Rows) -> Float[Array, "m u"]:
    if layer.bias is None:
        return jnp.zeros((len(rows), layer.units), rows.dtype)
    return layer.bias.matrices(rows)[:, 0]


def _join(layers: Layers, parts: list[tuple[Array, Array]]) -> Array:
    """The inverse of `_split_vector`; what stands for a bias that a layer has not is left out."""
    leaves = []
    for layer, (weights, biases) in zip(layers.layers, parts, strict=True):
        leaves += layer.weights.leaves(weights[None])
        leaves += [] if layer.bias is None else layer.bias.leaves(biases[None, None])
    return jnp.concatenate([leaf[0] for _, leaf in sorted(leaves, key=lambda part: part[0])])


def _stars(layers: Layers, matrix: Array) -> tuple[Star, ...]:
    """The kept entries of a precision given as a diagonal or in full."""
    stars = []
    index = jnp.arange(len(matrix), dtype=matrix.dtype)[None]
    for layer, (weights, biases) in zip(layers.layers, _split_vector(layers, diagonal_of(matrix)), strict=True):
        cross = jnp.zeros_like(weights)
        if layer.bias is not None and matrix.ndim == 2:
            at_weights = layer.weights.matrices(index)[0].astype(int)
            at_biases = layer.bias.matrices(index)[0].astype(int)
            cross = matrix[at_weights, jnp.broadcast_to(at_biases, at_weights.shape)]
        bias = jnp.ones_like(biases) if layer.bias is None else biases
        stars.append(Star(diagonal=weights, cross=cross, bias=bias))
    return tuple(stars)


def quasi_diagonal() -> QuasiDiagonal:
    """A variance for each parameter, and the covariance of each weight with the bias of its unit.

    Learning does not change when the inputs of a unit are rescaled one by one, shifted or negated, or when its
    nonlinearity is replaced by an affine image of it (a logistic by a tanh), with the parameters re-expressed.
    """
    return QuasiDiagonal()
