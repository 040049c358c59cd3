"""A Kronecker product per layer: (inputs^2 + units^2) numbers, whatever the layer does with its weights."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from natkal import linalg
from natkal.curvature.base import Prior
from natkal.curvature.kronecker_rows import Factors, Known, Tested, apply, look_matrices, look_outer
from natkal.curvature.limits import holds, largest_variance
from natkal.curvature.projected import Look, Projected, needs_prior, precision
from natkal.curvature.spread import Spread, spread
from natkal.curvature.units import Layers, find_layers, layer_places
from natkal.linalg import inverse
from natkal.rows import Rows
from natkal.typing import Array, Float


class KroneckerState(NamedTuple):
    """The factors of each layer, and A and D of Lambda_0's layers if the prior is kept.

    `limit` is the variance that forgetting may reach.
    """

    factors: tuple[Factors, ...]
    prior: tuple[tuple[Float[Array, "n n"], Float[Array, "u u"]], ...] | None
    layers: Layers
    limit: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class Kronecker(Projected[KroneckerState]):
    """Projection of each layer's precision on a Kronecker product, by partial traces; build it with `kronecker`.

    With Lambda seen as a tensor (input i, unit a, input j, unit b): A = sum_a Lambda_iaja, D = sum_i Lambda_iaib, and
    Lambda ~ A x D / tr Lambda. It is exact on products, so fading and a prior with one variance per input lose nothing;
    it keeps the trace; and it is linear, so that sums of Fisher matrices need no more than sums of A and of D.

    For one observation a dense layer's rows are outer products y x', whatever the library: then nothing costs more than
    m (n^2 + u^2 + n u). It is tested on the numbers; other rows (convolutions, recurrent cells) take the general path,
    m n u (n + u).
    """

    def init(self, prior: Prior) -> KroneckerState:
        """Partial traces of Lambda_0."""
        layers = find_layers(prior.layout)
        start = precision(needs_prior(prior, "Kronecker"))
        kept = None if prior.kept is None else _partial_traces(layers, precision(prior.kept))
        factors = (
            _diagonal_factors(layers, start)
            if start.ndim == 1
            else map(_invert, *zip(*_partial_traces(layers, start), strict=True))
        )
        limit = largest_variance(needs_prior(prior, "Kronecker"))
        return KroneckerState(factors=tuple(factors), prior=kept, layers=layers, limit=limit)

    def fade(self, state: KroneckerState, keep: Float[Array, ""], restore: Float[Array, ""] | None) -> KroneckerState:
        """A scalar; with a kept prior the factors are inverted anew, at a cost of n^3 + u^3."""
        if state.prior is None or restore is None:
            factors = tuple(_held(own._replace(scale=keep * own.scale), state.limit) for own in state.factors)
        else:
            factors = tuple(
                _invert(
                    keep * own.scale * inverse(own.left) + restore * left,
                    keep * own.scale * inverse(own.right) + restore * right,
                )
                for own, (left, right) in zip(state.factors, state.prior, strict=True)
            )
        return state._replace(factors=factors)

    def prior_product(self, state: KroneckerState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """Lambda_0 vector."""
        assert state.prior is not None
        parts = [
            (left @ stack[0] @ right / jnp.trace(left))[None]
            for (left, right), stack in zip(state.prior, state.layers.split(vector[None]), strict=True)
        ]
        return state.layers.join(parts)[0]

    def look(self, state: KroneckerState, rows: Rows) -> Look:
        """Layers add up; outer products have (y A^-1 y) (x D^-1 x)."""
        gram = jnp.zeros((len(rows), len(rows)), rows.dtype)
        images = []
        for own, layer in zip(state.factors, state.layers.layers, strict=True):
            known = layer.outer(rows)
            seen = look_matrices(own, layer.matrices(rows)) if known is None else look_outer(own, known)
            gram = gram + seen.gram
            images.append(seen)
        return Look(gram=gram, images=images)

    def move(
        self, state: KroneckerState, rows: Rows, images: list[Known | Tested], weights: Float[Array, " m"]
    ) -> Float[Array, " p"]:
        """P rows' weights = A^-1 (sum_k weights_k row_k) D^-1 trace / scale."""
        parts = [seen.combined(own, weights)[None] for own, seen in zip(state.factors, images, strict=True)]
        return state.layers.join(parts)[0]

    def absorb(
        self, state: KroneckerState, rows: Rows, look: Look, factor: Float[Array, "m r"], change: Float[Array, "r m"]
    ) -> KroneckerState:
        """A + sum_r V_r V_r', D + sum_r V_r' V_r."""
        factors = tuple(seen.added(own, factor) for own, seen in zip(state.factors, look.images, strict=True))
        return state._replace(factors=factors)

    def embed(self, state: KroneckerState, larger: KroneckerState, places: Any) -> KroneckerState:
        """P on the old parameters as it was; a new input or unit has its prior on average over the others.

        With P = A^-1 x D^-1 trace / scale, a new input i gets (A^-1)_ii such that the mean over the old units of its
        variances is the prior's, a new unit likewise. Then tr A = tr D is restored, which leaves P as it is.
        """
        factors = []
        for own, wide, small, large in zip(
            state.factors, larger.factors, state.layers.layers, larger.layers.layers, strict=True
        ):
            inputs, units = layer_places(small, large, places)
            size = own.trace / own.scale
            prior = jnp.diagonal(wide.left)[:, None] * jnp.diagonal(wide.right)[None, :] * (wide.trace / wide.scale)
            left = jnp.diag(jnp.mean(prior[:, units], axis=1) / (size * jnp.mean(jnp.diagonal(own.right))))
            right = jnp.diag(jnp.mean(prior[inputs], axis=0) / (size * jnp.mean(jnp.diagonal(own.left))))
            new_left = jnp.sum(1 / jnp.diagonal(left)) - jnp.sum(1 / jnp.diagonal(left)[inputs])
            new_right = jnp.sum(1 / jnp.diagonal(right)) - jnp.sum(1 / jnp.diagonal(right)[units])
            left = left.at[inputs[:, None], inputs[None, :]].set(own.left)
            right = right.at[units[:, None], units[None, :]].set(own.right)
            both = (own.trace + new_left) * (own.trace + new_right)
            factors.append(
                Factors(
                    left=left * own.trace / (own.trace + new_right),
                    right=right * own.trace / (own.trace + new_left),
                    trace=both / own.trace,
                    scale=own.scale,
                )
            )
        return larger._replace(factors=tuple(factors))

    def solve(self, state: KroneckerState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """P vector."""
        parts = [
            apply(own, stack[0])[None]
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
            both = linalg.cholesky(own.left).triangle() @ noise @ linalg.cholesky(own.right).triangle().T
            parts.append((both * jnp.sqrt(own.trace / own.scale))[None])
        return state.layers.join(parts)[0]


def _partial_traces(layers: Layers, matrix: Array) -> tuple[tuple[Array, Array], ...]:
    """A and D of each layer, of a precision given as a diagonal or in full."""
    pairs = []
    for layer in layers.layers:
        if matrix.ndim == 1:
            own = layer.matrices(matrix[None])[0]
            pairs.append((jnp.diag(own.sum(axis=1)), jnp.diag(own.sum(axis=0))))
        else:
            columns = layer.matrices(matrix).reshape(len(matrix), -1)
            tensor = layer.matrices(columns.T).reshape(layer.inputs, layer.units, layer.inputs, layer.units)
            pairs.append((jnp.einsum("iaja->ij", tensor), jnp.einsum("iaib->ab", tensor)))
    return tuple(pairs)


def _diagonal_factors(layers: Layers, diagonal: Float[Array, " p"]) -> Iterator[Factors]:
    """The factors of a diagonal precision: diagonal too, so nothing is factorised."""
    for layer in layers.layers:
        own = layer.matrices(diagonal[None])[0]
        trace = own.sum()
        left, right = jnp.diag(1 / own.sum(axis=1)), jnp.diag(1 / own.sum(axis=0))
        yield Factors(left=left, right=right, trace=trace, scale=jnp.ones_like(trace))


def _invert(left: Float[Array, "n n"], right: Float[Array, "u u"]) -> Factors:
    trace = jnp.trace(left)
    return Factors(left=inverse(left), right=inverse(right), trace=trace, scale=jnp.ones_like(trace))


def _held(own: Factors, limit: Float[Array, ""]) -> Factors:
    """The factors with no input and no unit of less precision than 1 / limit on average over the other factor.

    A_ii is the sum over the u units of the precisions of input i, so (A^-1)_ii / scale is held at limit / u, that of a
    unit at limit / n, and the trace at n u / limit from below. A loop of no or one turn: the factors are hardly ever
    written.
    """
    inputs, units = len(own.left), len(own.right)
    left_limit, right_limit = limit * own.scale / units, limit * own.scale / inputs
    least = inputs * units / (limit * own.scale)
    over = jnp.any(jnp.diagonal(own.left) > left_limit) | jnp.any(jnp.diagonal(own.right) > right_limit)

    def hold(turn: Array, factors: tuple[Array, Array]) -> tuple[Array, Array]:
        held = [
            (matrix, holds(jnp.diagonal(matrix) + 0 * turn, bound))
            for matrix, bound in zip(factors, (left_limit, right_limit), strict=True)
        ]
        left, right = (matrix * own[:, None] * own[None, :] for matrix, own in held)
        return left, right

    left, right = jax.lax.fori_loop(0, over.astype(jnp.int32), hold, (own.left, own.right))
    return Factors(left=left, right=right, trace=jnp.maximum(own.trace, least), scale=own.scale)


def kronecker(*, mesh: Mesh | None = None) -> Kronecker | Spread:
    """A Kronecker product of an input and a unit factor for each layer.

    Dense layers, convolutions (a kernel is read as a matrix from its patch to its units) and recurrent cells alike; the
    prior enters the factors, so there is no damping to set. Exact for a layer with one unit.

    `mesh` spreads the layers over the devices of a mesh, of one process or of many, a layer whole on one of them; a
    step then sends p numbers and the gram matrix of the observation from device to device.
    """
    return Kronecker() if mesh is None else spread(Kronecker(), find_layers, mesh, by_unit=False)
