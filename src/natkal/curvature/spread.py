"""A structure whose layers lie on the devices of a mesh: only gram matrices and steps cross between them.

This folder's README says what is placed where, and what crosses.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from natkal.curvature.base import Prior
from natkal.curvature.cut import Cut, Packed, Part, Shape, deal, packed, unpacked
from natkal.curvature.limits import largest_variance
from natkal.curvature.projected import Look, Projected, needs_prior
from natkal.curvature.units import Layers, Layout
from natkal.rows import Rows
from natkal.typing import Array, Float


class SpreadState(NamedTuple):
    """The states of all parts, and the variance that forgetting may reach."""

    packed: Packed
    cut: Cut
    limit: Float[Array, ""]


class Own(NamedTuple):
    """What each device has of something, as rows of one array, and the pytree of arrays that each row is."""

    numbers: Float[Array, "devices longest"]
    templates: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Spread(Projected[SpreadState]):
    """A structure in parts on the devices of a mesh; build it with `blocks(mesh=...)` or `kronecker(mesh=...)`.

    `inner` is the structure of one part, a layer given as a matrix (inputs, units). `layers` finds the layers, which
    are cut between units where `by_unit` says so.
    """

    inner: Projected[Any]
    layers: Callable[[Layout], Layers]
    by_unit: bool
    mesh: Mesh

    def init(self, prior: Prior) -> SpreadState:
        """Each device makes the states of its own parts from the prior variances."""
        cov = needs_prior(prior, "structured")
        if cov.ndim == 2 or (prior.kept is not None and prior.kept.ndim == 2):
            raise ValueError("prior_cov: with a mesh it is a number or variances, not a full matrix")
        kept = prior.kept is not None
        shapes = functools.partial(_part_state, self.inner, kept, cov.dtype)

        def size(shape: Shape) -> int:
            return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes(shape)))

        cut = deal(self.layers(prior.layout), self.mesh.size, size, by_unit=self.by_unit, kept=kept)

        def start(parts: tuple[Part, ...], own: tuple[()], shared: tuple[Array, Array | None]) -> tuple[None, Any]:
            cov, kept = shared
            states = []
            for part in parts:
                known = None if kept is None else cut.vector(part, kept)
                whole = Prior(cov=cut.vector(part, cov), kept=known, layout=_layout(cut.shape(part)))
                states.append(_bare(self.inner.init(whole)))
            return None, states

        _, own = self._on_each(cut, start, (), (cov, prior.kept), cov.dtype, compiled=True)
        runs = cut.runs(lambda shape: [leaf.shape for leaf in jax.tree.leaves(shapes(shape))])
        return SpreadState(packed=Packed(numbers=own.numbers, runs=runs), cut=cut, limit=largest_variance(cov))

    def fade(self, state: SpreadState, keep: Float[Array, ""], restore: Float[Array, ""] | None) -> SpreadState:
        """Each part by itself."""
        return self._changed(state, lambda part, own, shared: self.inner.fade(own, *shared), (keep, restore))

    def prior_product(self, state: SpreadState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """Lambda_0 vector."""
        return self._vector(state, lambda part, own, shared: self.inner.prior_product(own, *shared), vector)

    def solve(self, state: SpreadState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """P vector."""
        return self._vector(state, lambda part, own, shared: self.inner.solve(own, *shared), vector)

    def look(self, state: SpreadState, rows: Rows) -> Look:
        """The parts' gram matrices add up; their images stay where they are."""

        def mine(parts: tuple[Part, ...], own: tuple[Any], shared: tuple[Rows, Array]) -> tuple[Array, Any]:
            states, (rows, limit) = own[0], shared
            looks = [
                self.inner.look(_limited(one, limit), state.cut.rows(part, rows))
                for part, one in zip(parts, states, strict=True)
            ]
            grams = [look.gram for look in looks]
            return sum(grams[1:], grams[0]), [look.images for look in looks]

        gram, images = self._on_each(state.cut, mine, (self._states(state),), (rows, state.limit), rows.dtype)
        return Look(gram=gram, images=images)

    def move(self, state: SpreadState, rows: Rows, images: Own, weights: Float[Array, " m"]) -> Float[Array, " p"]:
        """P rows' weights."""

        def mine(parts: tuple[Part, ...], own: tuple[Any, Any], shared: tuple[Any, ...]) -> tuple[Array, Any]:
            (states, images), (rows, weights, limit) = own, shared
            steps = [
                self.inner.move(_limited(one, limit), state.cut.rows(part, rows), seen, weights)
                for part, one, seen in zip(parts, states, images, strict=True)
            ]
            return state.cut.joined(parts, steps), ()

        shared = (rows, weights, state.limit)
        return self._on_each(state.cut, mine, (self._states(state), images), shared, weights.dtype)[0]

    def absorb(
        self, state: SpreadState, rows: Rows, look: Look, factor: Float[Array, "m r"], change: Float[Array, "r m"]
    ) -> SpreadState:
        """Each part by itself."""

        def mine(parts: tuple[Part, ...], own: tuple[Any, Any], shared: tuple[Any, ...]) -> tuple[None, Any]:
            (states, images), (rows, gram, factor, change, limit) = own, shared
            learned = [
                self.inner.absorb(
                    _limited(one, limit), state.cut.rows(part, rows), Look(gram=gram, images=seen), factor, change
                )
                for part, one, seen in zip(parts, states, images, strict=True)
            ]
            return None, [_bare(one) for one in learned]

        shared = (rows, look.gram, factor, change, state.limit)
        spread = (self._states(state), look.images)
        return _replaced(state, self._on_each(state.cut, mine, spread, shared, factor.dtype)[1])

    def embed(self, state: SpreadState, larger: SpreadState, places: Any) -> SpreadState:
        """Refused."""
        raise ValueError("mesh: a state that is spread over devices cannot be made larger")

    def to_dense(self, state: SpreadState) -> Float[Array, "p p"]:
        """P as a full matrix."""
        size = sum(piece.size for piece in state.cut.layers.pieces)
        return jax.vmap(lambda vector: self.solve(state, vector))(jnp.eye(size, dtype=state.packed.numbers.dtype))

    def sample(self, state: SpreadState, key: Array) -> Float[Array, " p"]:
        """One draw from N(0, P): the law does not depend on the mesh, the numbers do."""

        def draw(part: Part, own: Any, shared: tuple[Array]) -> Array:
            mine = jax.random.fold_in(jax.random.fold_in(jax.random.wrap_key_data(shared[0]), part.layer), part.first)
            return self.inner.sample(own, mine)

        return self._parts(state, draw, (jax.random.key_data(key),))

    def _states(self, state: SpreadState) -> Own:
        dtype = state.packed.numbers.dtype
        templates = tuple(
            [_part_state(self.inner, state.cut.kept, dtype, state.cut.shape(part)) for part in parts]
            for parts in state.cut.devices
        )
        return Own(numbers=state.packed.numbers, templates=templates)

    def _changed(self, state: SpreadState, change: Callable[[Part, Any, Any], Any], shared: Any) -> SpreadState:
        """Another state from each part's own."""

        def mine(parts: tuple[Part, ...], own: tuple[Any], shared: tuple[Any, Array]) -> tuple[None, Any]:
            states, (rest, limit) = own[0], shared
            changed = [change(part, _limited(one, limit), rest) for part, one in zip(parts, states, strict=True)]
            return None, [_bare(one) for one in changed]

        dtype = state.packed.numbers.dtype
        return _replaced(state, self._on_each(state.cut, mine, (self._states(state),), (shared, state.limit), dtype)[1])

    def _parts(self, state: SpreadState, make: Callable[[Part, Any, Any], Array], shared: Any) -> Float[Array, " p"]:
        """A vector over all parameters, made part by part."""

        def mine(parts: tuple[Part, ...], own: tuple[Any], shared: tuple[Any, Array]) -> tuple[Array, Any]:
            states, (rest, limit) = own[0], shared
            made = [make(part, _limited(one, limit), rest) for part, one in zip(parts, states, strict=True)]
            return state.cut.joined(parts, made), ()

        dtype = state.packed.numbers.dtype
        return self._on_each(state.cut, mine, (self._states(state),), (shared, state.limit), dtype)[0]

    def _vector(
        self, state: SpreadState, make: Callable[[Part, Any, Any], Array], vector: Float[Array, " p"]
    ) -> Float[Array, " p"]:
        """The same from a vector over all parameters."""
        return self._parts(state, lambda part, own, shared: make(part, own, (state.cut.vector(part, shared),)), vector)

    def _on_each(
        self,
        cut: Cut,
        function: Callable[[tuple[Part, ...], Any, Any], tuple[Any, Any]],
        spread: tuple[Own, ...],
        shared: Any,
        dtype: Any,
        *,
        compiled: bool = False,
    ) -> tuple[Any, Own]:
        """`function` on each device, with its parts, what it has of `spread`, and `shared`, which all have.

        It returns what is summed over the devices, and what stays there. Each device runs a branch of its own; nothing
        crosses inside of one.
        """

        def branch(device: int, rows: tuple[Array, ...], shared: Any) -> tuple[Any, Any]:
            own = tuple(unpacked(one.templates[device], row) for one, row in zip(spread, rows, strict=True))
            return function(cut.devices[device], own, shared)

        rows = tuple(jax.ShapeDtypeStruct(one.numbers.shape[1:], one.numbers.dtype) for one in spread)
        templates = tuple(
            jax.eval_shape(functools.partial(branch, device), rows, shared)[1] for device in range(len(cut.devices))
        )
        longest = max(sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree)) for tree in templates)

        def mine(numbers: tuple[Array, ...], shared: Any) -> tuple[Any, Array]:
            def run(device: int, rows: tuple[Array, ...], shared: Any) -> tuple[Any, Array]:
                summed, own = branch(device, rows, shared)
                return summed, packed(own, longest, dtype)

            here = jax.lax.axis_index(self.mesh.axis_names)
            branches = [functools.partial(run, device) for device in range(len(cut.devices))]
            summed, own = jax.lax.switch(here, branches, tuple(one[0] for one in numbers), shared)
            return jax.lax.psum(summed, self.mesh.axis_names), own[None]

        by_row = PartitionSpec(self.mesh.axis_names)
        everywhere = jax.shard_map(
            mine,
            mesh=self.mesh,
            in_specs=(by_row, PartitionSpec()),
            out_specs=(PartitionSpec(), by_row),
            check_vma=False,
        )
        run = jax.jit(everywhere) if compiled else everywhere
        summed, numbers = run(tuple(one.numbers for one in spread), shared)
        return summed, Own(numbers=numbers, templates=templates)


@functools.lru_cache(maxsize=256)
def _part_state(inner: Projected[Any], kept: bool, dtype: Any, shape: Shape) -> Any:
    """Shapes of the arrays of one part's state."""
    variances = jax.ShapeDtypeStruct((math.prod(shape),), dtype)
    known = variances if kept else None
    return jax.eval_shape(
        lambda cov, kept: _bare(inner.init(Prior(cov=cov, kept=kept, layout=_layout(shape)))), variances, known
    )


def _layout(shape: Shape) -> Layout:
    return (("weight", shape),)


def _bare(state: Any) -> Any:
    """A part's state without the limit, which all share."""
    return state._replace(limit=None)


def _limited(state: Any, limit: Float[Array, ""]) -> Any:
    return state._replace(limit=limit)


def _replaced(state: SpreadState, own: Own) -> SpreadState:
    return state._replace(packed=Packed(numbers=own.numbers, runs=state.packed.runs))


def spread(inner: Projected[Any], layers: Callable[[Layout], Layers], mesh: Mesh, *, by_unit: bool) -> Spread:
    """`Spread` on the devices of a mesh whose axes leave the placing of everything else to the compiler."""
    return Spread(inner=inner, layers=layers, by_unit=by_unit, mesh=Mesh(mesh.devices, mesh.axis_names))
