"""A curvature of its own for each part of the network, and none at all for the parts that stay as they are."""

import dataclasses
import fnmatch
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.curvature.base import Alone, Curvature, Prior, Response, Update
from natkal.curvature.innovation import attenuated, correction
from natkal.curvature.units import Layout, find_layers, starts
from natkal.typing import Array, Float, Num


class Frozen(Alone):
    """P = 0: nothing is learned, nothing is stored; build it with `frozen`."""

    factored: ClassVar[bool] = False

    def init(self, prior: Prior) -> "FrozenState":
        """Only how many parameters there are, and of what kind."""
        dtype = jnp.zeros(0).dtype if prior.cov is None else prior.cov.dtype
        return FrozenState(size=sum(math.prod(shape) for _, shape in prior.layout), dtype=str(dtype))

    def update(
        self,
        state: "FrozenState",
        rows: Float[Array, "m p"],
        respond: Callable[[Float[Array, "m m"]], Response],
        keep: Float[Array, ""],
        restore: Float[Array, ""] | None = None,
        offset: Float[Array, " p"] | None = None,
    ) -> Update:
        """No step."""
        gram = jnp.zeros((len(rows), len(rows)), rows.dtype)
        respond(gram)
        return Update(state=state, step=jnp.zeros(rows.shape[1], rows.dtype), gram=gram)

    def solve(self, state: "FrozenState", vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """0."""
        return jnp.zeros_like(vector)

    def quadratic(self, state: "FrozenState", rows: Float[Array, "m p"]) -> Float[Array, "m m"]:
        """0."""
        return jnp.zeros((len(rows), len(rows)), rows.dtype)

    def to_dense(self, state: "FrozenState") -> Float[Array, "p p"]:
        """0."""
        return jnp.zeros((state.size, state.size), state.dtype)

    def sample(self, state: "FrozenState", key: Array) -> Float[Array, " p"]:
        """0."""
        return jnp.zeros(state.size, state.dtype)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class FrozenState:
    """The number of parameters that are not learned, and their precision."""

    size: int
    dtype: str


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Parts:
    """Which stretches [start, stop) of the flat vector belong to each part."""

    stretches: tuple[tuple[tuple[int, int], ...], ...]

    def take(self, part: int, rows: Float[Array, "*m p"]) -> Float[Array, "*m part"]:
        """One part of each row."""
        return jnp.concatenate([rows[..., start:stop] for start, stop in self.stretches[part]], axis=-1)

    def join(self, vectors: Sequence[Num[Array, " _"]]) -> Num[Array, " p"]:
        """All parts as one flat vector."""
        placed = []
        for vector, stretches in zip(vectors, self.stretches, strict=True):
            begin = 0
            for start, stop in stretches:
                placed.append((start, vector[begin : begin + stop - start]))
                begin += stop - start
        return jnp.concatenate([piece for _, piece in sorted(placed, key=lambda piece: piece[0])])


class MixedState(NamedTuple):
    """The state of each part's curvature."""

    inner: tuple[Any, ...]
    parts: Parts


Rule = Callable[[Layout], list[int]]


@dataclasses.dataclass(frozen=True, eq=False)
class Mixed(Alone):
    """Independent parts, each in its own structure; build it with `mixed` or `last_layer`.

    The step is the one of the joint filter: with G = sum_i G_i and w = (I + F F' G)^-1 e, part i must move
    by P_i rows_i' w. Alone it would move by P_i rows_i' (I + F F' G_i)^-1 e_i, so it is shown e_i = (I + F F' G_i) w.

    A part learns of y as if the others were known: each has its block of the joint precision. `decoupled`: what is not
    known of the others is noise to it, F_i F_i' = ((F F')^-1 + G - G_i)^-1 in the place of F F', so each has its own
    marginal, the block of the joint covariance (Puskorius and Feldkamp's decoupled filter).
    """

    factored: ClassVar[bool] = False
    rule: Rule
    curvatures: tuple[Curvature, ...]
    decoupled: bool = False

    def init(self, prior: Prior) -> MixedState:
        """Each part starts from its own block of the prior covariance."""
        owners = self.rule(prior.layout)
        ends = [start + math.prod(shape) for (_, shape), start in zip(prior.layout, starts(prior.layout), strict=True)]
        stretches, layouts = [], []
        for part in range(len(self.curvatures)):
            mine = [leaf for leaf, owner in enumerate(owners) if owner == part]
            stretches.append(tuple((starts(prior.layout)[leaf], ends[leaf]) for leaf in mine))
            layouts.append(tuple(prior.layout[leaf] for leaf in mine))
        parts = Parts(tuple(stretches))

        def restrict(part: int, cov: Array | None) -> Array | None:
            if cov is None or cov.ndim == 1:
                return None if cov is None else parts.take(part, cov)
            return parts.take(part, parts.take(part, cov).T)

        inner = tuple(
            curvature.init(Prior(cov=restrict(part, prior.cov), kept=restrict(part, prior.kept), layout=layouts[part]))
            for part, curvature in enumerate(self.curvatures)
        )
        return MixedState(inner=inner, parts=parts)

    def update(
        self,
        state: MixedState,
        rows: Float[Array, "m p"],
        respond: Callable[[Float[Array, "m m"]], Response],
        keep: Float[Array, ""],
        restore: Float[Array, ""] | None = None,
        offset: Float[Array, " p"] | None = None,
    ) -> Update:
        """Ask every part what it knows of the rows, respond once, and let every part take its share."""
        count = len(self.curvatures)
        part_rows = [state.parts.take(part, rows) for part in range(count)]
        offsets = [None if offset is None else state.parts.take(part, offset) for part in range(count)]
        grams: list[Array] = []

        def nothing(gram: Float[Array, "m m"]) -> Response:
            grams.append(gram)
            return Response(jnp.zeros((len(rows), 1), rows.dtype), jnp.zeros(len(rows), rows.dtype))

        # An observation that says nothing: forgets, restores the prior, and shows the gram matrix and the pull of the
        # prior.
        forgotten = [
            self.curvatures[part].update(state.inner[part], part_rows[part], nothing, keep, restore, offsets[part])
            for part in range(count)
        ]
        gram = sum(grams[1:], grams[0])
        factor, push, _ = respond(gram)
        drifts = [own @ alone.step for own, alone in zip(part_rows, forgotten, strict=True)]
        weights = attenuated(gram, factor, push - factor @ (factor.T @ sum(drifts[1:], drifts[0])))

        def shown(own: Float[Array, "m m"], drift: Float[Array, " m"]) -> Response:
            seen = correction(gram - own, factor).T if self.decoupled else factor
            return Response(seen, weights + seen @ (seen.T @ (own @ weights + drift)))

        updates = [
            self.curvatures[part].update(
                state.inner[part],
                part_rows[part],
                lambda own, drift=drifts[part]: shown(own, drift),
                keep,
                restore,
                offsets[part],
            )
            for part in range(count)
        ]
        return Update(
            state=MixedState(inner=tuple(update.state for update in updates), parts=state.parts),
            step=state.parts.join([update.step for update in updates]),
            gram=sum((alone.gram for alone in forgotten[1:]), forgotten[0].gram),
        )

    def project(self, state: MixedState, to: "Mixed", layout: Layout) -> MixedState:
        """Each part by itself."""
        owners = self.rule(layout)
        inner = tuple(
            own.project(known, other, tuple(leaf for leaf, owner in zip(layout, owners, strict=True) if owner == part))
            for part, (own, known, other) in enumerate(zip(self.curvatures, state.inner, to.curvatures, strict=True))
        )
        return MixedState(inner=inner, parts=state.parts)

    def embed(self, state: MixedState, larger: MixedState, places: Any) -> MixedState:
        """Each part in the same part of the larger vector."""
        inner = []
        for part, (curvature, small, large) in enumerate(zip(self.curvatures, state.inner, larger.inner, strict=True)):
            own, new = (np.concatenate([np.arange(*s) for s in of.parts.stretches[part]]) for of in (state, larger))
            inner.append(curvature.embed(small, large, np.searchsorted(new, places[own])))
        return MixedState(inner=tuple(inner), parts=larger.parts)

    def solve(self, state: MixedState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """P vector."""
        return state.parts.join(
            [
                curvature.solve(inner, state.parts.take(part, vector))
                for part, (curvature, inner) in enumerate(zip(self.curvatures, state.inner, strict=True))
            ]
        )

    def quadratic(self, state: MixedState, rows: Float[Array, "m p"]) -> Float[Array, "m m"]:
        """Rows P rows'."""
        grams = [
            curvature.quadratic(inner, state.parts.take(part, rows))
            for part, (curvature, inner) in enumerate(zip(self.curvatures, state.inner, strict=True))
        ]
        return sum(grams[1:], grams[0])

    def to_dense(self, state: MixedState) -> Float[Array, "p p"]:
        """P as a full matrix."""
        inner = [curvature.to_dense(own) for curvature, own in zip(self.curvatures, state.inner, strict=True)]
        order = state.parts.join(
            [jnp.arange(len(block)) + start for block, start in zip(inner, _offsets(inner), strict=True)]
        )
        return jax.scipy.linalg.block_diag(*inner)[order][:, order]

    def sample(self, state: MixedState, key: Array) -> Float[Array, " p"]:
        """One draw from N(0, P)."""
        keys = jax.random.split(key, len(self.curvatures))
        return state.parts.join(
            [
                curvature.sample(inner, key)
                for curvature, inner, key in zip(self.curvatures, state.inner, keys, strict=True)
            ]
        )


def _offsets(blocks: Sequence[Array]) -> list[int]:
    return [sum(len(block) for block in blocks[:index]) for index in range(len(blocks))]


def frozen() -> Frozen:
    """Parameters that are known exactly and never move: for parts of `mixed`."""
    return Frozen()


def mixed(curvatures: Mapping[str, Curvature], *, decoupled: bool = False) -> Mixed:
    """A curvature for each part of the parameters, by the first pattern that a leaf's path matches.

    Paths are as `jax.tree_util.keystr` writes them; `*` and `?` are wild, everything else stands for itself. The parts
    are independent a priori, and one observation updates them jointly. `decoupled` keeps each part's own marginal, in
    which what is not known of the others counts as noise, instead of its block of the precision.

    >>> import natkal as nk
    >>> curvature = nk.mixed({"[1]*": nk.dense(), "*": nk.diagonal()})
    """
    if not curvatures:
        raise ValueError("curvatures: at least one pattern is needed, got none")
    patterns = list(curvatures)

    def rule(layout: Layout) -> list[int]:
        owners = []
        for path, _ in layout:
            matches = [index for index, pattern in enumerate(patterns) if _matches(path, pattern)]
            if not matches:
                raise ValueError(f"curvatures: no pattern matches the parameters {path!r}; patterns are {patterns}")
            owners.append(matches[0])
        unused = [pattern for index, pattern in enumerate(patterns) if index not in owners]
        if unused:
            raise ValueError(f"curvatures: no parameters match {unused[0]!r}; there are {[path for path, _ in layout]}")
        return owners

    return Mixed(rule=rule, curvatures=tuple(curvatures.values()), decoupled=decoupled)


def last_layer(inner: Curvature) -> Mixed:
    """Learn the last layer alone, under `inner`; everything before it stays as it was initialised.

    The last layer is the one whose leaves come last in the parameters' order.
    """

    def rule(layout: Layout) -> list[int]:
        begin = starts(layout)
        layers = find_layers(layout).layers
        last = {piece.start for piece in max(layers, key=lambda layer: max(p.start for p in layer.pieces)).pieces}
        if len(layers) == 1:
            raise ValueError("last_layer: the parameters form a single layer; use the inner curvature itself")
        return [0 if start in last else 1 for start in begin]

    return Mixed(rule=rule, curvatures=(inner, Frozen()))


def _matches(path: str, pattern: str) -> bool:
    """Glob matching in which brackets, common in paths, stand for themselves."""
    return fnmatch.fnmatchcase(path, pattern.replace("[", "[[]"))
