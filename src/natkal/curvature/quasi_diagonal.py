"""The diagonal plus each unit's bias row: 2p numbers, indifferent to the origin and scale of a unit's inputs."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature.base import Prior
from natkal.curvature.projected import Look, Projected, diagonal_of, inner_products, needs_prior, precision
from natkal.curvature.units import Layers, find_layers
from natkal.typing import Array, Float


class QuasiDiagonalState(NamedTuple):
    """Lambda_ii, and Lambda_0i of each weight i with its unit's bias 0 (zero at the biases); the same of a kept prior."""

    diagonal: Float[Array, " p"]
    cross: Float[Array, " p"]
    prior: tuple[Float[Array, " p"], Float[Array, " p"]] | None
    layers: Layers


class Frame(NamedTuple):
    """P = T' diag(variance) T: unit by unit, weight i is first freed of the bias, q_i = x_i - ratio_i x_0."""

    variance: Float[Array, " p"]
    ratio: Float[Array, " p"]


@dataclasses.dataclass(frozen=True)
class QuasiDiagonal(Projected[QuasiDiagonalState]):
    """The quasi-diagonal reduction (Ollivier, Riemannian metrics for neural networks I, sec. 2.3).

    Of each unit's block only Lambda_ii = d_i, Lambda_00 = c and Lambda_0i = b_i are kept; the rest is completed by b_i b_j / c,
    the one choice for which P is zero between two weights. With s_i = d_i - b_i^2 / c, P has s_i^-1 at weight i,
    -b_i / (c s_i) between i and the bias, 1/c + sum_i (b_i/c)^2 / s_i at the bias. All three kept numbers add up.
    """

    def init(self, prior: Prior) -> QuasiDiagonalState:
        """The kept entries of Lambda_0."""
        layers = find_layers(prior.layout)
        diagonal, cross = _kept_entries(layers, precision(needs_prior(prior, "quasi-diagonal")))
        return QuasiDiagonalState(
            diagonal=diagonal,
            cross=cross,
            prior=None if prior.kept is None else _kept_entries(layers, precision(prior.kept)),
            layers=layers,
        )

    def fade(
        self, state: QuasiDiagonalState, keep: Float[Array, ""], restore: Float[Array, ""] | None
    ) -> QuasiDiagonalState:
        """Exact: the kept entries are linear in Lambda."""
        diagonal, cross = keep * state.diagonal, keep * state.cross
        if state.prior is not None and restore is not None:
            diagonal, cross = diagonal + restore * state.prior[0], cross + restore * state.prior[1]
        return QuasiDiagonalState(diagonal=diagonal, cross=cross, prior=state.prior, layers=state.layers)

    def prior_product(self, state: QuasiDiagonalState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """Lambda_0 vector: with b_i b_j / c between the weights, T^-1 undoes what `Frame` does."""
        assert state.prior is not None
        frame = _frame(state.layers, *state.prior)
        # Lambda = T^-1 diag(1/variance) T'^-1
        return _unshear_rows(state.layers, frame, _unshear(state.layers, frame, vector) / frame.variance)

    def look(self, state: QuasiDiagonalState, rows: Float[Array, "m p"]) -> Look:
        """In the frame where P is diagonal."""
        frame = _frame(state.layers, state.diagonal, state.cross)
        freed = _shear(state.layers, frame, rows)
        return Look(gram=inner_products(freed * frame.variance[None, :], freed), images=(frame, freed))

    def move(
        self,
        state: QuasiDiagonalState,
        rows: Float[Array, "m p"],
        images: tuple[Frame, Array],
        weights: Float[Array, " m"],
    ) -> Float[Array, " p"]:
        """P rows' weights."""
        frame, freed = images
        return _shear_back(state.layers, frame, frame.variance * (weights @ freed))

    def absorb(
        self,
        state: QuasiDiagonalState,
        rows: Float[Array, "m p"],
        look: Look,
        factor: Float[Array, "m r"],
        change: Float[Array, "r m"],
    ) -> QuasiDiagonalState:
        """The kept entries of V V' are added."""
        root = factor.T @ rows
        bias = _bias_everywhere(state.layers, root)
        return QuasiDiagonalState(
            diagonal=state.diagonal + jnp.sum(root**2, axis=0),
            cross=state.cross + jnp.sum(root * bias, axis=0),
            prior=state.prior,
            layers=state.layers,
        )

    def solve(self, state: QuasiDiagonalState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """P vector."""
        frame = _frame(state.layers, state.diagonal, state.cross)
        freed = _shear(state.layers, frame, vector[None])[0]
        return _shear_back(state.layers, frame, frame.variance * freed)

    def to_dense(self, state: QuasiDiagonalState) -> Float[Array, "p p"]:
        """P as a full matrix."""
        return jax.vmap(lambda vector: self.solve(state, vector))(
            jnp.eye(len(state.diagonal), dtype=state.diagonal.dtype)
        )

    def sample(self, state: QuasiDiagonalState, key: Array) -> Float[Array, " p"]:
        """One draw from N(0, P)."""
        frame = _frame(state.layers, state.diagonal, state.cross)
        noise = jax.random.normal(key, state.diagonal.shape, state.diagonal.dtype)
        return _shear_back(state.layers, frame, jnp.sqrt(frame.variance) * noise)


def _frame(layers: Layers, diagonal: Float[Array, " p"], cross: Float[Array, " p"]) -> Frame:
    """Ratio b_i / c and variance 1 / (d_i - b_i^2 / c); 0 and 1/c at a bias."""
    variances, ratios = [], []
    for layer, own, shared in zip(layers.layers, layers.split(diagonal[None]), layers.split(cross[None]), strict=True):
        if not layer.has_bias:
            variances.append(1 / own)
            ratios.append(jnp.zeros_like(own))
            continue
        bias = own[:, -1:]
        ratio = shared / bias
        # d_i >= b_i^2 / c holds in exact arithmetic; rounding may lose what is left when the input is constant
        free = jnp.maximum(own - ratio * shared, 4 * jnp.finfo(own.dtype).eps * own)
        variances.append(1 / free)
        ratios.append(ratio)
    return Frame(variance=layers.join(variances)[0], ratio=layers.join(ratios)[0])


def _bias_everywhere(layers: Layers, rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
    """At each weight the entry of its unit's bias; zero at biases and where there is none."""
    stacks = []
    for layer, stack in zip(layers.layers, layers.split(rows), strict=True):
        if layer.has_bias:
            spread = jnp.broadcast_to(stack[:, -1:], stack[:, :-1].shape)
            stacks.append(jnp.concatenate([spread, jnp.zeros_like(stack[:, -1:])], axis=1))
        else:
            stacks.append(jnp.zeros_like(stack))
    return layers.join(stacks)


def _sum_into_bias(layers: Layers, vector: Float[Array, " p"]) -> Float[Array, " p"]:
    """At each bias the sum over its unit's weights; zero elsewhere. The transpose of `_bias_everywhere`."""
    stacks = []
    for layer, stack in zip(layers.layers, layers.split(vector[None]), strict=True):
        zeros = jnp.zeros_like(stack)
        if layer.has_bias:
            zeros = zeros.at[:, -1].set(jnp.sum(stack[:, :-1], axis=1))
        stacks.append(zeros)
    return layers.join(stacks)[0]


def _shear(layers: Layers, frame: Frame, rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
    """x_i - ratio_i x_0."""
    return rows - frame.ratio[None, :] * _bias_everywhere(layers, rows)


def _shear_back(layers: Layers, frame: Frame, vector: Float[Array, " p"]) -> Float[Array, " p"]:
    """The transpose of `_shear`: the bias gives back sum_i ratio_i z_i."""
    return vector - _sum_into_bias(layers, frame.ratio * vector)


def _unshear(layers: Layers, frame: Frame, vector: Float[Array, " p"]) -> Float[Array, " p"]:
    """The inverse of `_shear_back`."""
    return vector + _sum_into_bias(layers, frame.ratio * vector)


def _unshear_rows(layers: Layers, frame: Frame, vector: Float[Array, " p"]) -> Float[Array, " p"]:
    """The inverse of `_shear`."""
    return vector + frame.ratio * _bias_everywhere(layers, vector[None])[0]


def _kept_entries(layers: Layers, matrix: Array) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
    """Lambda_ii and Lambda_0i of a precision given as a diagonal or in full."""
    diagonal = diagonal_of(matrix)
    if matrix.ndim == 1:
        return diagonal, jnp.zeros_like(diagonal)
    index = jnp.arange(len(diagonal), dtype=diagonal.dtype)
    has_bias = _bias_everywhere(layers, jnp.ones_like(diagonal)[None])[0]
    bias = _bias_everywhere(layers, index[None])[0].astype(jnp.int32)
    return diagonal, matrix[jnp.arange(len(diagonal)), bias] * has_bias


def quasi_diagonal() -> QuasiDiagonal:
    """A variance for each parameter, and the covariance of each weight with the bias of its unit.

    Learning does not change when the inputs of a unit are rescaled one by one, shifted or negated, or when its
    nonlinearity is replaced by an affine image of it (a logistic by a tanh), with the parameters re-expressed.
    """
    return QuasiDiagonal()
