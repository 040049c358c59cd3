"""Architectures of the members that a table gets: a network without memory, a linear model with cells, a recurrent
network, the user's own.

Each has `name`, `params(seed, shape, outputs)`, `model(params, family, mask)`, `curvature(size)`,
`prior(params, shape)` and `learner(filter, mask, reach)`.
"""

import dataclasses
import importlib
import itertools
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.banks.spec import GroupSpec
from natkal.banks.tiles import CELLS, PLAIN, Tiled, random_grids, with_cells
from natkal.banks.units.late_classes import with_offsets
from natkal.compiling.float64 import float64
from natkal.curvature import Curvature, blocks, dense, kronecker
from natkal.engine import KalmanLearner
from natkal.engine.growth import in_corner
from natkal.errors import StreamError
from natkal.families import Family
from natkal.models import Model, cells, fan_in_prior, mlp_apply, recurrent_model, static_model
from natkal.typing import Array, Params

DENSE_UP_TO = 400
"""Parameters of a linear model that get a full covariance; a larger one, and every network, a structured one."""
DIRECTIONS = 1_000
"""The stream of random numbers of the directions of `Waves`; those below are of the layers of networks."""
RECURRENT = {"rnn": cells.tanh, "gru": cells.gru, "lstm": cells.lstm}
NAMED_SIZES = ("mlp", "tiles", *RECURRENT)
"""Architectures whose sizes stand behind their name."""
GRIDS, MOST_CELLS = 64, 4096
"""Random grids of a model with cells, and the most cells of one of them."""


class Inputs(NamedTuple):
    """One row: its numbers, and how many classes are known by now (0 for numbers).

    A model sees in the place of `known` what is added to each of its outputs (banks/units/late_classes.py).
    """

    features: Any
    known: Any


@dataclasses.dataclass(frozen=True)
class Shape:
    """The numbers of a row: how many there is room for, which are plain numbers to be scaled, and which are past.

    `fan_in` is the number of inputs that the priors of the first weights are divided by. `past` is how many of the
    inputs, the first ones, are earlier targets, `later_past` are the places of those that came later, and `naive` the
    weights of a naive forecast from them (none where there is no such forecast). `series`: rows in their order, with a
    date or names at most beside the target. `alone`: the table began with its target only; it has no members without
    the past, whatever columns come later.
    """

    columns: int
    scaled: tuple[bool, ...]
    past: int
    fan_in: int
    naive: tuple[float, ...] = ()
    series: bool = False
    alone: bool = False
    later_past: tuple[int, ...] = ()

    @property
    def is_past(self) -> np.ndarray:
        """For each input, whether it is made of earlier targets."""
        found = np.arange(self.columns) < self.past
        found[list(self.later_past)] = True
        return found


class Architecture:
    """Defaults of an architecture: prior variances 1/fan-in, and the filter itself as the learner."""

    def prior(self, params: Params, shape: Shape) -> Params:
        """The shape of the prior's variances."""
        return fan_in_prior(params)

    def learner(self, inner: KalmanLearner, mask: Any, reach: Any) -> Any:
        """The learner that is made of this filter."""
        return inner


@dataclasses.dataclass(frozen=True)
class Layers(Architecture):
    """A network without memory: hidden layers of these sizes, none for a linear model.

    Kronecker factors are safe in float32 (tests/curvature), where a network takes half the time.
    """

    hidden: tuple[int, ...]
    dtype: Any = np.float64

    @property
    def name(self) -> str:
        """As the option `model` spells it."""
        return "mlp:" + ",".join(map(str, self.hidden)) if self.hidden else "linear"

    def params(self, seed: int, shape: Shape, outputs: int) -> Params:
        """First weights of variance 1/fan-in; a linear model starts at zero."""
        sizes = (shape.columns, *self.hidden, outputs)
        layers = []
        for position, (inner, outer) in enumerate(itertools.pairwise(sizes)):
            fan_in = shape.fan_in if position == 0 else inner
            weight = np.zeros((inner, outer)) if not self.hidden else _drawn(seed, position, inner, outer, fan_in)
            layers.append({"weight": weight.astype(self.dtype), "bias": np.zeros(outer, self.dtype)})
        return layers

    def model(self, params: Params, family: Family, mask: Any) -> Model:
        """The network on the inputs that `mask` lets through."""

        def apply(params: Params, inputs: Inputs) -> Array:
            return with_offsets(self.apply(params, inputs.features * mask), inputs.known)

        return static_model(apply, params, family)

    def apply(self, params: Params, features: Array) -> Array:
        """The raw outputs."""
        return mlp_apply(params, features)

    def first_fan_in(self, shape: Shape) -> int:
        """How many features of the first layer its priors are divided by: later inputs do not change them."""
        return shape.fan_in

    def curvature(self, size: int) -> Curvature:
        """A full covariance for a small linear model, Kronecker factors elsewhere."""
        return dense(kernel="immediate") if not self.hidden and size <= DENSE_UP_TO else kronecker()

    def prior(self, params: Params, shape: Shape) -> Params:
        """1/fan-in, of the first layer over the inputs there were at the start."""
        prior = fan_in_prior(params)
        factor = len(params[0]["weight"]) / self.first_fan_in(shape)
        return [{name: leaf * factor for name, leaf in prior[0].items()}, *prior[1:]]


@dataclasses.dataclass(frozen=True)
class Tiles(Architecture):
    """A linear model and a table of cells for each of GRIDS random grids (banks/tiles.py).

    `reach` is the rate of the kernel times the number of inputs there were at the start. `places` is how many numbers
    all tables hold.
    """

    places: int
    seed: int
    shape: Shape
    plain: Layers = Layers(())

    @property
    def name(self) -> str:
        """Not among the models that the option `model` spells."""
        return "tiles"

    def params(self, seed: int, shape: Shape, outputs: int) -> Params:
        """Everything starts at zero."""
        return {CELLS: np.zeros((GRIDS, outputs)), PLAIN: self.plain.params(seed, shape, outputs)}

    def model(self, params: Params, family: Family, mask: Any) -> Model:
        """The linear model and the sum of the cells."""

        def apply(params: Params, inputs: Inputs) -> Array:
            outputs = mlp_apply(params[PLAIN], inputs.features * mask) + jnp.sum(params[CELLS], axis=0)
            return with_offsets(outputs, inputs.known)

        return static_model(apply, params, family)

    def curvature(self, size: int) -> Curvature:
        """That of the linear model, and a variance for each cell."""
        return with_cells(self.plain.curvature(size))

    def prior(self, params: Params, shape: Shape) -> Params:
        """The cells of a row have together the variance of one weight of fan-in 1."""
        cells = fan_in_prior({CELLS: params[CELLS]})
        return {**cells, PLAIN: self.plain.prior(params[PLAIN], shape)}

    def learner(self, inner: KalmanLearner, mask: Any, reach: Any) -> Any:
        """With as many places a grid as there is room for, a power of 2."""
        most = self.places // (GRIDS * inner.model.outputs.raw_dim)
        left_out = self.shape.past - jnp.sum(jnp.asarray(mask)[: self.shape.past])
        return Tiled(
            inner=inner,
            grids=random_grids(self.seed, GRIDS, self.shape.columns),
            numbers=lambda inputs: inputs.features * mask,
            rate=reach / jnp.maximum(self.shape.fan_in - left_out, 1.0),
            cells=min(MOST_CELLS, 1 << (most.bit_length() - 1)),
        )


@dataclasses.dataclass(frozen=True)
class Waves(Layers):
    """Linear in the inputs and in cosines of random projections of them.

    The cosines sqrt(2) cos(w_i' x + b_i), w_i normal of variance 1/d and b_i uniform, make a linear model with one
    prior variance for all of them nearly the Gaussian process with the kernel exp(-|x - x'|^2 / (2 d)), d inputs
    (Rahimi and Recht, Random features for large-scale kernel machines, 2007). They come before the inputs, and each
    input has directions of its own: what a later input adds comes last, and while it is 0 it changes nothing.
    `nearness` multiplies the distances |x - x'| in the kernel.
    """

    hidden: tuple[int, ...] = ()
    waves: int = 40
    fan_in: int = 1
    seed: int = 0
    nearness: float = 1.0

    @property
    def name(self) -> str:
        """As members are named."""
        return "waves" if self.nearness == 1 else "near waves"

    def params(self, seed: int, shape: Shape, outputs: int) -> Params:
        """Zeros, as of a linear model."""
        return super().params(seed, dataclasses.replace(shape, columns=self.waves + shape.columns), outputs)

    def apply(self, params: Params, features: Array) -> Array:
        """The raw outputs."""
        return mlp_apply(params, jnp.concatenate([self.cosines(features), features]))

    def cosines(self, features: Array) -> Array:
        """sqrt(2) cos(nearness w_i' x + b_i)."""
        directions = _drawn(self.seed, DIRECTIONS, len(features), self.waves, self.fan_in).astype(self.dtype)
        phases = np.random.default_rng((self.seed, DIRECTIONS)).uniform(0, 2 * np.pi, self.waves).astype(self.dtype)
        return np.sqrt(2).astype(self.dtype) * jnp.cos(self.nearness * (features @ directions) + phases)

    def first_fan_in(self, shape: Shape) -> int:
        """The inputs there were first, and the cosines."""
        return self.waves + shape.fan_in


@dataclasses.dataclass(frozen=True, eq=False)
class MaskedCell:
    """A cell on the inputs that `mask` lets through; its weights feed the same units."""

    cell: Any
    mask: Any

    def __call__(self, params: Params, state: Any, inputs: Inputs) -> Any:
        """The next state."""
        return self.cell(params, state, inputs.features * self.mask)

    def owners(self, params: Params) -> np.ndarray:
        """The unit that each parameter feeds."""
        return self.cell.owners(params)

    @property
    def wiring(self) -> np.ndarray:
        """Which unit reads which."""
        return self.cell.wiring


@dataclasses.dataclass(frozen=True)
class Memory(Architecture):
    """A recurrent network with one layer of this cell."""

    cell: str
    units: int

    @property
    def name(self) -> str:
        """As the option `model` spells it."""
        return f"{self.cell}:{self.units}"

    @float64
    def params(self, seed: int, shape: Shape, outputs: int) -> Params:
        """First weights of the cell and of its readout, the same numbers in every door."""
        cell = RECURRENT[self.cell](self.units)

        def draw() -> Params:
            cell_key, readout_key = jax.random.split(jax.random.key(seed))
            return {
                "cell": cell.params(cell_key, shape.columns),
                "readout": cells.readout_params(readout_key, cell.width, outputs),
            }

        return jax.tree.map(np.asarray, jax.jit(draw)())

    def model(self, params: Params, family: Family, mask: Any) -> Model:
        """The cell on the inputs that `mask` lets through."""
        cell = RECURRENT[self.cell](self.units)

        def read(params: Params, state: Any, inputs: Inputs) -> Array:
            return with_offsets(cell.readout(params, state, inputs.features * mask), inputs.known)

        return recurrent_model(MaskedCell(cell, mask), read, params, cell.state(), family)

    def curvature(self, size: int) -> Curvature:
        """A full covariance while it is small, one for each unit's weights beyond."""
        return dense(kernel="immediate") if size <= 3 * DENSE_UP_TO else blocks()


@dataclasses.dataclass(frozen=True)
class UsersOwn(Architecture):
    """A network of the user's own: `function(inputs, outputs)` returns (apply, params)."""

    spec: str
    start: Any = dataclasses.field(compare=False)
    apply: Callable[..., Array] = dataclasses.field(compare=False)

    @property
    def name(self) -> str:
        """As the option `model` spells it."""
        return self.spec

    def params(self, seed: int, shape: Shape, outputs: int) -> Params:
        """The user's own."""
        return self.start

    def model(self, params: Params, family: Family, mask: Any) -> Model:
        """The user's function on the inputs that `mask` lets through."""
        own = self.apply

        def apply(params: Params, inputs: Inputs) -> Array:
            return with_offsets(jnp.reshape(own(params, inputs.features * mask), (-1,)), inputs.known)

        return static_model(apply, params, family)

    def curvature(self, size: int) -> Curvature:
        """A full covariance while it is small."""
        return dense(kernel="immediate") if size <= 3 * DENSE_UP_TO else kronecker()


def _drawn(seed: int, layer: int, rows: int, columns: int, fan_in: int) -> np.ndarray:
    """Normal weights of variance 1/fan-in; row i does not depend on how many rows there are."""
    parts = [np.random.default_rng((seed, layer, row)).normal(size=columns) for row in range(rows)]
    return np.stack(parts) / np.sqrt(fan_in)


def make_architecture(spec: GroupSpec, seed: int, shape: Shape, outputs: int) -> Architecture:
    """The architecture that a group names: linear, mlp:64,64, tiles:4096, gru:8 or the user's own."""
    kind, _, sizes = spec.architecture.partition(":")
    if kind == "linear":
        return Layers((), np.dtype(spec.dtype))
    if kind == "mlp":
        return Layers(tuple(int(size) for size in sizes.split(",")), np.dtype(spec.dtype))
    if kind == "tiles":
        return Tiles(int(sizes), seed, shape)
    if kind in RECURRENT:
        return Memory(kind, int(sizes))
    return load_users_network(spec.architecture, shape.columns, outputs)


def grows_into(small: UsersOwn, large: UsersOwn, inputs: int, more: int) -> bool:
    """Whether `large`, with the parameters of `small` in the corners of its own, is `small` where new inputs are 0."""
    row = np.random.default_rng(0).normal(size=inputs)
    try:
        params = in_corner(*(jax.tree.map(jnp.asarray, one.start) for one in (small, large)))
        before = np.ravel(small.apply(small.start, row))
        after = np.ravel(large.apply(params, np.append(row, np.zeros(more))))
    except (TypeError, ValueError):
        return False
    return len(after) >= len(before) and bool(np.allclose(after[: len(before)], before, rtol=1e-6, atol=1e-6))


def load_users_network(spec: str, inputs: int, outputs: int) -> UsersOwn:
    """`function(inputs, outputs) -> (apply, params)` of the module that the option `model` names."""
    module_name, _, function_name = spec.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function: Any = getattr(importlib.import_module(module_name), function_name)
        apply, params = function(inputs, outputs)
        start = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    except Exception as error:
        raise StreamError(
            f"model: {spec} must be a function (inputs, outputs) -> (apply, params): {type(error).__name__}: {error}"
        ) from error
    return UsersOwn(spec, start, apply)
