"""A filter whose model has, beside its own parameters, a table of weights of which each row meets a few.

Random binning features (Rahimi and Recht 2007, section 4). Grid m has its own pitch and offset in every input, and the
cell that a row u falls into has a weight of its own:

    f(u) = plain(u) + sum_m table[m, cell_m(u)],      pitches ~ Gamma(2, 1/rate),  offsets uniform

Two rows fall into the same cell of a grid with probability exp(-rate |u - u'|_1). So where the weights are independent
a priori with variance v / M, f is a Gaussian process with the Laplace kernel v exp(-rate |u - u'|_1) around `plain`:
near rows have like targets, and nothing is assumed of far ones. Neighbours and forests learn such functions; networks
learn them slowly.

The Jacobian of a row is zero but at its M cells. A filter with a diagonal covariance of the table therefore changes
those alone: they are gathered into the parameters of a small filter, `inner`, which takes the step of the engine, and
are put back. So a step costs M and not M x T. A cell forgets with each of its own rows, and not between them.

Independent variances overstate what is left unknown. After n rows that share all their M cells the sum of these is
known up to R / n, while each cell by itself says R / n too, M R / n together. Where rows share few cells they are
right. So what a row says of its cells counts COUNTED times, a number between 1 and M (`_put_back`).

The T cells of a grid are places in a hash table; two far cells may share one.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.compiling.policy import jit_method
from natkal.curvature import Curvature, MixedState, Prior, diagonal, mixed
from natkal.engine import KalmanLearner, KalmanState, StepInfo
from natkal.engine.forecast import Path
from natkal.engine.prediction import FilterPrediction
from natkal.engine.rates import Rates
from natkal.engine.state import short
from natkal.families.base import Family
from natkal.models import Feed, Model
from natkal.typing import Array, Float, Int, Params

CELLS, PLAIN = "cells", "plain"
"""The two parts of the parameters of the small filter: the weights of a row's cells (M, K), and all others."""
COUNTED = 4.0
"""How often what a row says of its cells counts: 2 to 4 is best for classes, 4 to 16 for numbers."""
FARTHEST = 1e9
"""Cells further than so many from that of 0 are one."""


class TiledState(NamedTuple):
    """The small filter with what it knows of its plain parameters, and of every cell its weight and variance."""

    plain: KalmanState
    weights: Float[Array, "m t k"]
    variances: Float[Array, "m t k"]

    def __repr__(self) -> str:
        return f"TiledState({self.plain!r}, cells={short((self.weights, self.variances))})"

    @property
    def params(self) -> Params:
        """The plain parameters."""
        return self.plain.params

    @property
    def steps(self) -> Any:
        """How many observations were learned from."""
        return self.plain.steps


@dataclasses.dataclass(frozen=True, eq=False)
class Grids:
    """M grids over d inputs, in units of 1/rate; row j of the numbers of an input does not depend on how many follow.

    The cell of 0 is numbered 0 in every input, so an input that is 0 is as good as none.
    """

    pitches: np.ndarray
    offsets: np.ndarray
    factors: np.ndarray

    def places(self, inputs: Float[Array, " d"], rate: Any, cells: int) -> Int[Array, " m"]:
        """The place of the row's cell in each grid, of `cells` (a power of 2): multiply-shift hashing, well mixed."""
        scaled = inputs[None, :] * rate / jnp.asarray(self.pitches, inputs.dtype)
        steps = jnp.floor(scaled + jnp.asarray(self.offsets, inputs.dtype))
        whole = jnp.clip(steps, -FARTHEST, FARTHEST).astype(jnp.int32).astype(jnp.uint32)
        mixed_up = jnp.sum(whole * jnp.asarray(self.factors), axis=1, dtype=jnp.uint32)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            mixed_up = (mixed_up ^ (mixed_up >> shift)) * jnp.uint32(factor)
        return (mixed_up >> (32 - (cells - 1).bit_length())).astype(jnp.int32)


def random_grids(seed: int, grids: int, inputs: int) -> Grids:
    """Pitches from Gamma(2, 1), offsets from the unit interval, odd factors."""
    columns = []
    for column in range(max(inputs, 1)):
        rng = np.random.default_rng((seed, column))
        odd = rng.integers(0, 2**31, size=grids, dtype=np.uint32) * 2 + 1
        columns.append((rng.gamma(2.0, size=grids), rng.uniform(size=grids), odd))
    pitches, offsets, factors = (np.stack(part, axis=1)[:, :inputs] for part in zip(*columns, strict=True))
    return Grids(np.maximum(pitches, 1e-3), offsets, factors)


def with_cells(curvature: Curvature) -> Curvature:
    """This curvature for the plain parameters, independent variances for the cells: that of `inner`."""
    return mixed({f"['{CELLS}']": diagonal(), "*": curvature}, decoupled=True)


@dataclasses.dataclass(frozen=True, eq=False)
class Tiled:
    """The learner. `inner` is a filter on {"cells": (M, K), "plain": ...} whose model adds the cells up.

    Its curvature is made by `with_cells`. `numbers` gives the numbers of a row, `rate` how fast the kernel falls with
    their distance, `cells` how many places the table of a grid has.
    """

    inner: KalmanLearner
    grids: Grids
    numbers: Callable[[Any], Array]
    rate: Any
    cells: int
    dtype: Any = np.float32

    def __repr__(self) -> str:
        return f"Tiled({self.inner!r}, {len(self.grids.pitches)} grids of {self.cells} cells)"

    @property
    def outputs(self) -> Family:
        """The law of an observation."""
        return self.inner.outputs

    @property
    def size(self) -> int:
        """How many numbers are learned."""
        own = np.size(self.inner.model.params[CELLS])  # pyright: ignore[reportAttributeAccessIssue]
        return self.inner.model.size + (self.cells - 1) * own

    @property
    def model(self) -> Model:
        """That of the small filter, which is what a step costs."""
        return self.inner.model

    @property
    def curvature(self) -> Curvature:
        """That of the small filter."""
        return self.inner.curvature

    @property
    def rates(self) -> Rates:
        """Those of the small filter."""
        return self.inner.rates

    def init(self, params: Params | None = None, key: Array | None = None) -> TiledState:
        """Every cell with the variance of the prior, at 0 unless `params` has them all, as `sample` gives them."""
        own: Any = self.inner.model.params
        given = own if params is None else {**params, CELLS: own[CELLS]}  # pyright: ignore[reportGeneralTypeIssues]
        start = self.inner.init(given, key)
        variances = self.inner.curvature.solve(start.curvature, jnp.ones(self._size, self._precision(start)))
        cells = self.inner.model.unravel(variances)[CELLS]  # pyright: ignore[reportAttributeAccessIssue]
        table = jnp.broadcast_to(cells[:, None], (len(cells), self.cells, cells.shape[1])).astype(self.dtype)
        weights = jnp.zeros_like(table) if params is None else jnp.asarray(params[CELLS], self.dtype)  # pyright: ignore
        return TiledState(self._plain(start), weights, table)

    @jit_method
    def predict(self, state: TiledState, inputs: Any) -> FilterPrediction:
        """The predictive law of the next y; learns nothing."""
        return self.inner.predict(self._gathered(state, self._places(inputs)), inputs)

    @jit_method
    def step(self, state: TiledState, inputs: Any, target: Any) -> tuple[TiledState, StepInfo]:
        """The step of the small filter on the cells of this row."""
        places = self._places(inputs)
        before = self._gathered(state, places)
        after, info = self.inner.step(before, inputs, target)
        keep = jnp.where(info.accepted, info.keep, 1.0)  # a step that is not taken forgets nothing
        return self._put_back(state, places, self._variances(before), after, keep), info

    def restart(self, state: TiledState) -> TiledState:
        """Nothing to forget at the start of a sequence."""
        return state._replace(plain=self.inner.restart(state.plain))

    def forecast(self, state: TiledState, inputs: Any, horizon: int, feed: Feed | None = None) -> FilterPrediction:
        """The next `horizon` observations, each predicted from its own row."""
        if feed is not None:
            raise ValueError("feed: a model with cells has no closed form for inputs that are made of its own outputs")
        return jax.vmap(lambda row: self.predict(state, row))(inputs)

    def sample(self, state: TiledState, key: Array) -> Params:
        """A draw from the posterior: plain parameters, and the whole table under "cells"."""
        plain_key, cells_key = jax.random.split(key)
        own = self._gathered(state, jnp.zeros(len(state.weights), jnp.int32))
        drawn = self.inner.sample(own, plain_key)
        noise = jax.random.normal(cells_key, state.weights.shape, state.weights.dtype)
        return {**drawn, CELLS: state.weights + jnp.sqrt(state.variances) * noise}  # pyright: ignore[reportGeneralTypeIssues]

    def covariance(self, state: TiledState) -> Float[Array, "p p"]:
        """The posterior covariance in full: all cells, then the plain parameters, which are independent of them."""
        own = self._gathered(state, jnp.zeros(len(state.weights), jnp.int32))
        count = state.weights.shape[0] * state.weights.shape[2]
        plain = self.inner.covariance(own)[count:, count:]
        return jax.scipy.linalg.block_diag(jnp.diag(state.variances.ravel().astype(plain.dtype)), plain)

    def inflate(self, state: TiledState, factor: Array) -> TiledState:
        """The state with P times `factor`."""
        places = jnp.zeros(len(state.weights), jnp.int32)
        larger = self.inner.inflate(self._gathered(state, places), factor)
        return state._replace(plain=self._plain(larger), variances=state.variances * factor.astype(self.dtype))

    def embedded(self, state: TiledState, larger: Any, fresh: TiledState) -> TiledState:
        """The state as one of a learner that takes more inputs or more classes; both come last.

        With more classes there may be fewer cells: the place of a cell is that of the leading bits of its hash, so
        neighbours become one.
        """
        own = self._gathered(state, jnp.zeros(len(state.weights), jnp.int32))
        new = larger._gathered(fresh, jnp.zeros(len(fresh.weights), jnp.int32))
        weights, variances = _merged(state.weights, state.variances, fresh.variances)
        corner = tuple(slice(0, size) for size in weights.shape)
        return TiledState(
            plain=larger._plain(self.inner.embedded(own, larger.inner, new)),
            weights=fresh.weights.at[corner].set(weights),
            variances=fresh.variances.at[corner].set(variances),
        )

    def start_path(self, state: TiledState, key: Array) -> Path:
        """The start of a path: a deviation of the plain parameters that stays the same all along."""
        return self.inner.start_path(self._gathered(state, jnp.zeros(len(state.weights), jnp.int32)), key)

    def follow(
        self, state: TiledState, path: Path, inputs: Any, scale: Any, key: Array
    ) -> tuple[Path, FilterPrediction]:
        """One step of a path; the cells that its row falls into deviate anew at each step."""
        step_key, cells_key = jax.random.split(key)
        own = self._gathered(state, self._places(inputs))
        variances = self._variances(own).ravel()
        noise = jnp.sqrt(variances) * jax.random.normal(cells_key, variances.shape, path.deviation.dtype)
        drawn = path._replace(deviation=path.deviation.at[: len(variances)].set(noise))
        after, prediction = self.inner.follow(own, drawn, inputs, scale, step_key)
        return after._replace(deviation=path.deviation), prediction

    @property
    def _size(self) -> int:
        return self.inner.model.size

    def _precision(self, state: KalmanState) -> Any:
        return jnp.result_type(*jax.tree.leaves(state.params))

    def _places(self, inputs: Any) -> Int[Array, " m"]:
        return self.grids.places(self.numbers(inputs), self.rate, self.cells)

    def _gathered(self, state: TiledState, places: Int[Array, " m"]) -> KalmanState:
        """The small filter on these cells."""
        rows = jnp.arange(len(places))
        dtype = self._precision(state.plain)
        weights, variances = (part[rows, places].astype(dtype) for part in (state.weights, state.variances))
        cells, _ = self.inner.curvature.curvatures  # pyright: ignore[reportAttributeAccessIssue]
        layout = ((f"['{CELLS}']", weights.shape),)
        known = cells.init(Prior(cov=variances.ravel(), kept=None, layout=layout))
        curvature = state.plain.curvature
        return state.plain._replace(
            params={CELLS: weights, PLAIN: state.plain.params},
            curvature=MixedState(inner=(known, curvature.inner[1]), parts=curvature.parts),
        )

    def _plain(self, state: KalmanState) -> KalmanState:
        """The small filter without its cells."""
        curvature: Any = state.curvature
        return state._replace(
            params=state.params[PLAIN], curvature=MixedState(inner=((), curvature.inner[1]), parts=curvature.parts)
        )

    def _variances(self, state: KalmanState) -> Float[Array, "m k"]:
        """Those of the cells that were gathered."""
        curvature: Any = self.inner.curvature
        known: Any = state.curvature
        weights = state.params[CELLS]
        ones = jnp.ones(weights.size, weights.dtype)
        return curvature.curvatures[0].solve(known.inner[0], ones).reshape(weights.shape)

    def _put_back(
        self, state: TiledState, places: Int[Array, " m"], before: Float[Array, "m k"], after: KalmanState, keep: Any
    ) -> TiledState:
        """The cells of a row after its step; what it said of them counts COUNTED times."""
        faded, precisions = keep / before, 1 / self._variances(after)
        told = jnp.maximum(precisions - faded, 0.0)
        variances = 1 / (precisions + (COUNTED - 1) * told)
        return TiledState(
            plain=self._plain(after),
            weights=_with_cells_at(state.weights, places, after.params[CELLS]),
            variances=_with_cells_at(state.variances, places, variances),
        )


def _merged(
    weights: Float[Array, "m t k"], variances: Float[Array, "m t k"], prior: Float[Array, "m u l"]
) -> tuple[Float[Array, "m u k"], Float[Array, "m u k"]]:
    """Cells of which several are one: it knows what each was told beyond the prior, p = p0 + sum (p_i - p0)."""
    grids, cells, outputs = weights.shape
    if prior.shape[1] >= cells:
        return weights, variances
    by_place = (grids, prior.shape[1], cells // prior.shape[1], outputs)
    known, start = (1 / variances).reshape(by_place), 1 / prior[:, :, :outputs]
    total = start + jnp.sum(jnp.maximum(known - start[:, :, None], 0.0), axis=2)
    return jnp.sum(known * weights.reshape(by_place), axis=2) / total, 1 / total


def _with_cells_at(table: Float[Array, "m t k"], places: Int[Array, " m"], cells: Float[Array, "m k"]) -> Array:
    """The table with these cells replaced, one after the other: slices stay in place and are part of a machine function
    (compiling.py), a scatter is not.
    """
    new = cells.astype(table.dtype)[:, None, None]

    def replace(grid: Array, table: Array) -> Array:
        grid = grid.astype(places.dtype)
        return jax.lax.dynamic_update_slice(table, new[grid], (grid, places[grid], jnp.zeros_like(grid)))

    return jax.lax.fori_loop(0, len(places), replace, table)
