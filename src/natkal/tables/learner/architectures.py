"""Architectures of the members that a table gets: a network without memory, a linear model with cells, the
user's own. Recurrent networks are in recurrent.py, the seam is in base.py.
"""

import dataclasses
import importlib
import itertools
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.banks.spec import GroupSpec
from natkal.banks.tiles import CELLS, PLAIN, Tiled, random_grids, with_cells
from natkal.banks.units.late_classes import with_offsets
from natkal.curvature import Curvature, dense, kronecker
from natkal.engine import KalmanLearner
from natkal.engine.growth import in_corner
from natkal.errors import StreamError
from natkal.families import Family
from natkal.models import Model, fan_in_prior, mlp_apply, static_model
from natkal.tables.learner.base import DENSE_UP_TO, Architecture, Inputs, Shape
from natkal.tables.learner.maps import COLUMNS, Map, Products
from natkal.tables.learner.maps.base import drawn
from natkal.tables.learner.recurrent import KINDS, make_memory
from natkal.typing import Array, Params

NAMED_SIZES = ("mlp", "tiles", *KINDS)
"""Architectures whose sizes stand behind their name."""
GRIDS, MOST_CELLS = 64, 4096
"""Random grids of a model with cells, and the most cells of one of them."""


@dataclasses.dataclass(frozen=True)
class Layers(Architecture):
    """A network without memory: hidden layers of these sizes, none for a linear model, on what `map` makes of a row.

    Kronecker factors are safe in float32 (tests/curvature), where a network takes half the time.
    """

    hidden: tuple[int, ...]
    dtype: Any = np.float64
    map: Map = COLUMNS

    @property
    def name(self) -> str:
        """As the option `model` spells it."""
        return "mlp:" + ",".join(str(size) for size in self.hidden) if self.hidden else self.map.name

    def params(self, seed: int, shape: Shape, outputs: int) -> Params:
        """First weights of variance 1/fan-in; a linear model starts at zero."""
        sizes = (self.map.size(shape.columns), *self.hidden, outputs)
        layers = []
        for position, (inner, outer) in enumerate(itertools.pairwise(sizes)):
            fan_in = self.map.size(shape.fan_in) if position == 0 else inner
            weight = np.zeros((inner, outer)) if not self.hidden else drawn(seed, position, inner, outer, fan_in)
            layers.append({"weight": weight.astype(self.dtype), "bias": np.zeros(outer, self.dtype)})
        return layers

    def model(self, params: Params, family: Family, value: Mapping[str, Any]) -> Model:
        """The network on the inputs that the mask lets through."""

        def apply(params: Params, inputs: Inputs) -> Array:
            return with_offsets(self.apply(params, inputs.features * value["mask"]), inputs.known)

        return static_model(apply, params, family)

    def apply(self, params: Params, features: Array) -> Array:
        """The raw outputs."""
        return mlp_apply(params, self.map(features))

    def curvature(self, size: int) -> Curvature:
        """A full covariance for a small linear model, Kronecker factors elsewhere."""
        return dense(kernel="immediate") if not self.hidden and size <= DENSE_UP_TO else kronecker()

    def prior(self, params: Params, shape: Shape) -> Params:
        """1/fan-in, of the first layer over the inputs there were at the start."""
        prior = fan_in_prior(params)
        factor = len(params[0]["weight"]) / self.map.size(shape.fan_in)
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

    def model(self, params: Params, family: Family, value: Mapping[str, Any]) -> Model:
        """The linear model and the sum of the cells."""

        def apply(params: Params, inputs: Inputs) -> Array:
            outputs = mlp_apply(params[PLAIN], inputs.features * value["mask"]) + jnp.sum(params[CELLS], axis=0)
            return with_offsets(outputs, inputs.known)

        return static_model(apply, params, family)

    def curvature(self, size: int) -> Curvature:
        """That of the linear model, and a variance for each cell."""
        return with_cells(self.plain.curvature(size))

    def prior(self, params: Params, shape: Shape) -> Params:
        """The cells of a row have together the variance of one weight of fan-in 1."""
        cells = fan_in_prior({CELLS: params[CELLS]})
        return {**cells, PLAIN: self.plain.prior(params[PLAIN], shape)}

    def learner(self, inner: KalmanLearner, value: Mapping[str, Any]) -> Any:
        """With as many places a grid as there is room for, a power of 2."""
        mask = value["mask"]
        most = self.places // (GRIDS * inner.model.outputs.raw_dim)
        left_out = self.shape.past - jnp.sum(jnp.asarray(mask)[: self.shape.past])
        return Tiled(
            inner=inner,
            grids=random_grids(self.seed, GRIDS, self.shape.columns),
            numbers=lambda inputs: inputs.features * value["mask"],
            rate=value["reach"] / jnp.maximum(self.shape.fan_in - left_out, 1.0),
            cells=min(MOST_CELLS, 1 << (most.bit_length() - 1)),
        )


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

    def model(self, params: Params, family: Family, value: Mapping[str, Any]) -> Model:
        """The user's function on the inputs that the mask lets through."""
        own = self.apply

        def apply(params: Params, inputs: Inputs) -> Array:
            return with_offsets(jnp.reshape(own(params, inputs.features * value["mask"]), (-1,)), inputs.known)

        return static_model(apply, params, family)

    def curvature(self, size: int) -> Curvature:
        """A full covariance while it is small."""
        return dense(kernel="immediate") if size <= 3 * DENSE_UP_TO else kronecker()


def make_architecture(spec: GroupSpec, seed: int, shape: Shape, outputs: int) -> Architecture:
    """The architecture that a group names: linear, products, mlp:64,64, tiles:4096, gru:8 or the user's own."""
    kind, _, sizes = spec.architecture.partition(":")
    if kind == "linear":
        return Layers((), np.dtype(spec.dtype))
    if kind == "products":
        return Layers((), np.dtype(spec.dtype), products_of(shape, seed))
    if kind == "mlp":
        return Layers(tuple(int(size) for size in sizes.split(",")), np.dtype(spec.dtype))
    if kind == "tiles":
        return Tiles(int(sizes), seed, shape)
    if kind in KINDS:
        return make_memory(spec, shape)
    return load_users_network(spec.architecture, shape.columns, outputs)


def grows_into(small: UsersOwn, large: UsersOwn, inputs: int, more: int) -> bool:
    """Whether `large`, with parameters of `small` in the corners of its own, is `small` where new inputs are 0."""
    rng = np.random.default_rng(0)
    row = rng.normal(size=inputs)
    own = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=np.shape(leaf))), small.start)
    try:
        params = in_corner(own, jax.tree.map(jnp.asarray, large.start))
        before = np.ravel(small.apply(own, row))
        after = np.ravel(large.apply(params, np.append(row, np.zeros(more))))
    except (TypeError, ValueError):
        return False
    return len(after) >= len(before) and bool(np.allclose(after[: len(before)], before, rtol=1e-6, atol=1e-6))


def products_of(shape: Shape, seed: int) -> Products:
    """Those of the columns that a table began with, without earlier targets."""
    began = range(shape.past, min(shape.fan_in, shape.columns))
    return Products(tuple(began), tuple(place for place in began if not shape.scaled[place]), seed=seed)


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
