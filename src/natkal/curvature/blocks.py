"""A full covariance per group of parameters: per layer, per unit, or as a function of the name says."""

import dataclasses
import functools
from collections.abc import Callable, Hashable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from natkal import linalg
from natkal.curvature.base import Prior
from natkal.curvature.innovation import correction
from natkal.curvature.limits import holds, largest_variance
from natkal.curvature.prior import prior_root
from natkal.curvature.projected import Look, Projected, combine, inner_products, needs_prior, precision, squares
from natkal.curvature.spread import Spread, spread
from natkal.curvature.units import Layers, Layout, Piece, find_layers, layer_places, merge, starts, with_outgoing
from natkal.rows import Outer, Rows
from natkal.typing import Array, Float

By = Literal["layer", "neuron", "unit"] | Callable[[str], Hashable]


class BlocksState(NamedTuple):
    """For each group of equal blocks their covariances (blocks, n, n), and roots of Lambda_0's blocks if it is kept.

    `limit` is the variance that forgetting may reach, of all entries or of each.
    """

    covs: tuple[Float[Array, "blocks n n"], ...]
    prior: tuple[Float[Array, "blocks n n"], ...] | None
    groups: Layers
    limit: Float[Array, ""] | tuple[Float[Array, "blocks n"], ...]


@dataclasses.dataclass(frozen=True)
class Blocks(Projected[BlocksState]):
    """Projection on a block diagonal, of the precision or of the covariance; build it with `blocks`."""

    by: By
    decoupled: bool
    within_prior: bool = False

    def init(self, prior: Prior) -> BlocksState:
        """The blocks of P_0, or the inverses of those of Lambda_0."""
        groups = _groups(prior.layout, self.by)
        covs = self._covs(groups, needs_prior(prior, "block"))
        roots = None
        if prior.kept is not None:
            # Lambda_0 = R R' with R = C'^-1, C C' = Sigma_0
            roots = tuple(jnp.swapaxes(jax.vmap(prior_root)(block), 1, 2) for block in self._covs(groups, prior.kept))
        limit: Any = largest_variance(needs_prior(prior, "block"))
        if self.within_prior:
            limit = tuple(2 * jnp.diagonal(cov, axis1=1, axis2=2) for cov in covs)
        return BlocksState(covs=covs, prior=roots, groups=groups, limit=limit)

    def _covs(self, groups: Layers, cov: Array) -> tuple[Array, ...]:
        if cov.ndim == 1:
            return tuple(jax.vmap(jnp.diag)(stack[0].T) for stack in groups.split(cov[None]))
        if self.decoupled:
            return _diagonal_blocks(groups, cov)
        return tuple(jax.vmap(precision)(block) for block in _diagonal_blocks(groups, precision(cov)))

    def fade(self, state: BlocksState, keep: Float[Array, ""], restore: Float[Array, ""] | None) -> BlocksState:
        """P / keep; with a kept prior (P^-1 keep + restore R R')^-1, at a cost of n^3 per block."""
        limits = state.limit if self.within_prior else (state.limit,) * len(state.covs)
        covs = tuple(_held(cov, limit) * (1 / keep) for cov, limit in zip(state.covs, limits, strict=True))
        if state.prior is not None and restore is not None:

            def add_prior(cov: Array, root: Array) -> Array:
                images = correction(cov, jnp.sqrt(restore) * root) @ cov
                return cov - images.T @ images

            covs = tuple(jax.vmap(add_prior)(cov, root) for cov, root in zip(covs, state.prior, strict=True))
        return state._replace(covs=covs)

    def prior_product(self, state: BlocksState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """Lambda_0 vector."""
        assert state.prior is not None
        parts = [
            jnp.einsum("uij,ukj,ku->iu", root, root, stack[0])
            for root, stack in zip(state.prior, state.groups.split(vector[None]), strict=True)
        ]
        return state.groups.join([part[None] for part in parts])[0]

    def look(self, state: BlocksState, rows: Rows) -> Look:
        """The blocks' own gram matrices add up."""
        images = []
        for cov, layer in zip(state.covs, state.groups.layers, strict=True):
            known = layer.outer(rows)
            images.append(_look_whole(cov, layer.matrices(rows)) if known is None else _look_outer(cov, known))
        grams = [image.gram for image in images]
        return Look(gram=sum(grams[1:], grams[0]), images=images)

    def move(
        self, state: BlocksState, rows: Rows, images: list["Whole | Thin"], weights: Float[Array, " m"]
    ) -> Float[Array, " p"]:
        """P rows' weights."""
        return state.groups.join([image.combined(weights)[None] for image in images])[0]

    def absorb(
        self, state: BlocksState, rows: Rows, look: Look, factor: Float[Array, "m r"], change: Float[Array, "r m"]
    ) -> BlocksState:
        """Each block adds its own Fisher matrix, or, decoupled, takes its share of the joint posterior covariance."""
        covs = [
            image.without(cov, change) if self.decoupled else image.conditioned(cov, factor)
            for cov, image in zip(state.covs, look.images, strict=True)
        ]
        return state._replace(covs=tuple(covs))

    def embed(self, state: BlocksState, larger: BlocksState, places: Any) -> BlocksState:
        """The old blocks within the new ones; units and inputs that are new have their prior."""
        covs, limits = [], []
        for at, (small, large) in enumerate(zip(state.groups.layers, larger.groups.layers, strict=True)):
            inputs, units = layer_places(small, large, places)
            own, wide = state.covs[at], larger.covs[at]
            covs.append(wide.at[units[:, None, None], inputs[None, :, None], inputs[None, None, :]].set(own))
            if self.within_prior:
                limits.append(larger.limit[at].at[units[:, None], inputs[None, :]].set(state.limit[at]))
        return larger._replace(covs=tuple(covs), limit=tuple(limits) if self.within_prior else larger.limit)

    def solve(self, state: BlocksState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """P vector."""
        return self.move(state, vector[None], self.look(state, vector[None]).images, jnp.ones(1, vector.dtype))

    def to_dense(self, state: BlocksState) -> Float[Array, "p p"]:
        """P as a full matrix."""
        size = sum(piece.size for layer in state.groups.layers for piece in layer.pieces)
        return jax.vmap(lambda vector: self.solve(state, vector))(jnp.eye(size, dtype=state.covs[0].dtype))

    def sample(self, state: BlocksState, key: Array) -> Float[Array, " p"]:
        """One draw from N(0, P)."""
        keys = jax.random.split(key, len(state.covs))
        parts = [
            jnp.einsum("uij,uj->iu", _roots(cov), jax.random.normal(key, cov.shape[:2], cov.dtype))[None]
            for key, cov in zip(keys, state.covs, strict=True)
        ]
        return state.groups.join(parts)[0]


class Whole(NamedTuple):
    """Rows P and rows P rows' of each of a group's blocks."""

    images: Float[Array, "blocks m n"]
    grams: Float[Array, "blocks m m"]

    @property
    def gram(self) -> Float[Array, "m m"]:
        """Of the group."""
        return jnp.sum(self.grams, axis=0)

    def combined(self, weights: Float[Array, " m"]) -> Float[Array, "n blocks"]:
        """P rows' weights."""
        return jnp.einsum("umi,m->iu", self.images, weights)

    def conditioned(self, cov: Float[Array, "blocks n n"], factor: Float[Array, "m r"]) -> Float[Array, "blocks n n"]:
        """(P^-1 + rows' factor factor' rows)^-1, block by block."""
        roots = jax.vmap(lambda gram, image: correction(gram, factor) @ image)(self.grams, self.images)
        return cov - jnp.einsum("uri,urj->uij", roots, roots)

    def without(self, cov: Float[Array, "blocks n n"], change: Float[Array, "r m"]) -> Float[Array, "blocks n n"]:
        """P - P rows' change' change rows P."""
        roots = jnp.einsum("rm,umi->uri", change, self.images)
        return cov - jnp.einsum("uri,urj->uij", roots, roots)


class Thin(NamedTuple):
    """The same for units that all see the inputs y, row k being y deltas_k': P y and y' P y of each block."""

    images: Float[Array, "blocks n"]
    lengths: Float[Array, " blocks"]
    deltas: Float[Array, "m blocks"]

    @property
    def gram(self) -> Float[Array, "m m"]:
        """Of the group."""
        return inner_products(self.deltas * self.lengths[None, :], self.deltas)

    def combined(self, weights: Float[Array, " m"]) -> Float[Array, "n blocks"]:
        """P rows' weights."""
        return (self.images * combine(weights, self.deltas)[:, None]).T

    def conditioned(self, cov: Float[Array, "blocks n n"], factor: Float[Array, "m r"]) -> Float[Array, "blocks n n"]:
        """(P^-1 + t y y')^-1, t = |factor' deltas|^2: one rank whatever the number of rows."""
        added = squares(factor, self.deltas)
        return self._less(cov, added / (1 + added * self.lengths))

    def without(self, cov: Float[Array, "blocks n n"], change: Float[Array, "r m"]) -> Float[Array, "blocks n n"]:
        """P - P rows' change' change rows P."""
        return self._less(cov, squares(change.T, self.deltas))

    def _less(self, cov: Float[Array, "blocks n n"], weights: Float[Array, " blocks"]) -> Float[Array, "blocks n n"]:
        roots = self.images * jnp.sqrt(weights)[:, None]
        return cov - roots[:, :, None] * roots[:, None, :]


def _look_whole(cov: Float[Array, "blocks n n"], matrices: Float[Array, "m n blocks"]) -> Whole:
    stacks = jnp.transpose(matrices, (2, 0, 1))
    images = stacks @ cov
    return Whole(images=images, grams=images @ jnp.swapaxes(stacks, 1, 2))


def _look_outer(cov: Float[Array, "blocks n n"], rows: Outer) -> Thin:
    images = cov @ rows.inputs
    return Thin(images=images, lengths=images @ rows.inputs, deltas=rows.deltas)


def _groups(layout: Layout, by: By) -> Layers:
    """Layers whose units are the blocks."""
    if by == "neuron":
        return find_layers(layout)
    if by == "unit":
        return with_outgoing(find_layers(layout))
    if by == "layer":
        return find_layers(layout).whole()
    labels: dict[Hashable, list[Piece]] = {}
    for (path, shape), start in zip(layout, starts(layout), strict=True):
        labels.setdefault(by(path), []).append(Piece(start=start, shape=shape, axis=0))
    return Layers(tuple(merge(pieces) for pieces in labels.values()))


def _diagonal_blocks(groups: Layers, matrix: Float[Array, "p p"]) -> tuple[Float[Array, "blocks n n"], ...]:
    """The blocks of a full matrix."""
    blocks = []
    for group, layer in enumerate(groups.layers):
        columns = groups.split(matrix)[group]
        both = layer.matrices(columns.reshape(len(matrix), -1).T)  # (n * units, n, units)
        square = both.reshape(layer.inputs, layer.units, layer.inputs, layer.units)
        blocks.append(jnp.einsum("iuju->uij", square))
    return tuple(blocks)


def _held(covs: Float[Array, "blocks n n"], limit: Float[Array, "#blocks #n"] | Float[Array, ""]) -> Array:
    """H P H, block by block."""
    blocks, size = covs.shape[:2]
    own = holds(covs.reshape(blocks, -1)[:, :: size + 1], limit)  # a slice of the diagonals: a gather takes longer
    return covs * own[:, :, None] * own[:, None, :]


def _roots(covs: Float[Array, "blocks n n"]) -> Float[Array, "blocks n n"]:
    return jax.vmap(lambda cov: linalg.cholesky(cov).triangle())(covs)


def blocks(
    *, by: By = "neuron", decoupled: bool = False, within_prior: bool = False, mesh: Mesh | None = None
) -> Blocks | Spread:
    """A full covariance for each group of parameters, the groups independent.

    `by="neuron"`: each unit's incoming weights and bias, p times fan-in numbers in all; `by="unit"`: the same with the
    unit's outgoing weights, where a narrower layer reads it, so that a wide recurrent layer with its readout costs no
    more than its parameters times its fan-in; `by="layer"`: each layer; or a function from a leaf's path (as
    `jax.tree_util.keystr` writes it) to a label, one group per label. By default a block adds its own Fisher matrix to
    its own precision; `decoupled` keeps the joint filter's covariance of each block (the decoupled extended Kalman
    filter, node-decoupled with `by="neuron"`).

    `within_prior`: what forgetting has widened to twice its prior's variance is set back to it (limits.py), for a model
    whose linearisation holds no further than that.

    `mesh` spreads the blocks over the devices of a mesh, of one process or of many, a block whole on one of them; a
    step then sends p numbers and the gram matrix of the observation from device to device.

    >>> import natkal as nk
    >>> nk.blocks(by=lambda path: "head" if "head" in path else "body").decoupled
    False
    """
    if not callable(by) and by not in ("layer", "neuron", "unit"):
        raise ValueError(f'by: must be "layer", "neuron", "unit" or a function of a leaf\'s path, got {by!r}')
    if mesh is not None:
        if within_prior:
            raise ValueError("within_prior: blocks that are spread over a mesh are held at one limit; leave it out")
        part = Blocks(by="neuron", decoupled=decoupled)
        return spread(part, functools.partial(_groups, by=by), mesh, by_unit=True)
    return Blocks(by=by, decoupled=decoupled, within_prior=within_prior)
