"""Which learner a table gets: the one place that chooses, for the command line, scikit-learn, river and `nk.learn`.

`auto` is a mixture over architectures, each with several priors and fadings and with and without the target's past:
a linear model, a network of one hidden layer and one of two, with a Kronecker-factored covariance for each layer.
"""

import dataclasses
import functools
import importlib
import itertools
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.curvature import Curvature, blocks, dense, kronecker
from natkal.engine import Learner, exact, fading, online, robust, sampled
from natkal.families import Family
from natkal.learners.auto import OUTLIER_DISTANCE, SHARE, expected_spread
from natkal.learners.bank import Bank
from natkal.learners.members import Group
from natkal.learners.predictive import Counted, Laws, PlugIn, Student, laws_for
from natkal.learners.scaled import Scaled
from natkal.learners.selection import Selection
from natkal.models import Model, cells, fan_in_prior, mlp_apply, recurrent_model, static_model
from natkal.tabular.errors import StreamError
from natkal.tabular.options import SINGLE_FADING, SINGLE_PRIOR_SCALE, Options
from natkal.tabular.tasks import Task
from natkal.typing import Array, Params

DENSE_UP_TO = 400
"""Parameters of a linear model that get a full covariance; a larger one, and every network, a structured one."""
UNKNOWN_CLASS = -1e9
"""Log-odds of a slot that has no class yet."""
LINEAR = ((10.0, 1e-3), (3.0, 5e-3), (30.0, 0.0), (1.0, 0.0), (10.0, 2e-2), (1.0, 1e-3))
"""(prior scale, fading) of the linear members."""
NAIVE = ((0.3, 0.0), (3.0, 0.0), (10.0, 1e-3))
"""(prior scale, fading) of the linear members whose prior is centred on the naive forecast of a series."""
NETWORK = ((10.0, 0.0), (10.0, 1e-3), (3.0, 5e-3))
"""(prior scale, fading) of the members of each network."""
HIDDEN = ((64,), (128, 128))
MANY_CLASSES, FISHER_DRAWS = 64, 4
"""Beyond so many classes the Fisher matrix is estimated from a few draws: the exact one costs classes^3 per row."""
CELLS = {"rnn": cells.tanh, "gru": cells.gru, "lstm": cells.lstm}


class Inputs(NamedTuple):
    """One row as a model sees it: its numbers, and how many classes are known by now."""

    features: Any
    known: Any


@dataclasses.dataclass(frozen=True)
class Shape:
    """The numbers of a row: how many there is room for, which are plain numbers to be scaled, and which are past.

    `fan_in` is the number of inputs that the priors of the first weights are divided by. `past` is how many of the
    inputs, the first ones, are earlier targets, and `naive` the weights of a naive forecast from them (none where there
    is no such forecast).
    """

    columns: int
    scaled: tuple[bool, ...]
    past: int
    fan_in: int
    naive: tuple[float, ...] = ()


@functools.lru_cache(maxsize=64)
def make_learner(options: Options, shape: Shape, task: Task, keyed: bool = False) -> Scaled:
    """The learner for rows of this shape and this task; the same object, compiled once, for the same question."""
    if options.single:
        groups = (_single(options, shape, task),)
        laws = _few_laws(task.family)
        selection = None
    else:
        groups = tuple(_groups(options, shape, task, keyed))
        laws = laws_for(task.family)
        many = sum(group.size for group in groups) > 2
        selection = Selection() if many and not keyed and options.budget != "best" else None
    bank = Bank(groups=groups, laws=laws, share=SHARE, selection=selection)
    example = Inputs(np.zeros(shape.columns), np.zeros((), np.int32))
    mask = np.array(shape.scaled) if options.standardize else np.zeros(shape.columns, bool)
    spread = 1.0 if task.family.support == "count" else expected_spread(task.family.unweighted)
    alike = np.arange(shape.columns)
    alike[: len(shape.naive)] = 0  # earlier targets are all in the units of the last one
    return Scaled(
        bank=bank,
        example=example,
        outputs=task.family,
        scaled=Inputs(mask, False),
        spread=spread,
        alike=Inputs(alike, None) if shape.naive else None,
    )


def member_names(learner: Scaled) -> list[str]:
    """A name for each member of the bank, for metrics and reports."""
    return [name for group in learner.bank.groups for name in group.names]


def _groups(options: Options, shape: Shape, task: Task, keyed: bool) -> list[Group]:
    """The architectures of the mixture; a model for each key gets linear ones only, since there are many of it."""
    if options.model != "auto":
        linear = options.model == "linear"
        settings, naive = (LINEAR, NAIVE) if linear else (NETWORK, ())
        return [_group(options, shape, task, _architecture(options, shape, task), settings, naive=naive)]
    groups = [_group(options, shape, task, Layers(()), LINEAR, naive=NAIVE)]
    if keyed or options.budget == "fast":
        return groups
    return [*groups, *(_group(options, shape, task, Layers(hidden, np.float32), NETWORK) for hidden in HIDDEN)]


def _single(options: Options, shape: Shape, task: Task) -> Group:
    prior = SINGLE_PRIOR_SCALE if options.prior_scale is None else options.prior_scale
    usual = SINGLE_FADING if options.forget else 0.0
    rate = usual if options.fading is None else options.fading
    architecture = Layers(()) if options.model == "auto" else _architecture(options, shape, task)
    return _group(options, shape, task, architecture, ((prior, rate),), both=False)


def _few_laws(family: Family) -> Laws:
    """One predictive law for one filter; the noise of a number is learned all the same."""
    inner = family.unweighted
    if inner.support == "real":
        return Counted(Student((2000.0,), (1.0,)))
    return Counted(PlugIn(inner)) if inner.support == "classes" else laws_for(family)


@dataclasses.dataclass(frozen=True)
class Layers:
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
            return _known_classes(mlp_apply(params, inputs.features * mask), inputs.known)

        return static_model(apply, params, family)

    def curvature(self, size: int) -> Curvature:
        """A full covariance for a small linear model, Kronecker factors elsewhere."""
        return dense(kernel="immediate") if not self.hidden and size <= DENSE_UP_TO else kronecker()


@dataclasses.dataclass(frozen=True)
class Memory:
    """A recurrent network with one layer of this cell."""

    cell: str
    units: int

    @property
    def name(self) -> str:
        """As the option `model` spells it."""
        return f"{self.cell}:{self.units}"

    def params(self, seed: int, shape: Shape, outputs: int) -> Params:
        """First weights of the cell and of its readout."""
        cell = CELLS[self.cell](self.units)

        def draw() -> Params:
            cell_key, readout_key = jax.random.split(jax.random.key(seed))
            return {
                "cell": cell.params(cell_key, shape.columns),
                "readout": cells.readout_params(readout_key, cell.width, outputs),
            }

        return jax.jit(draw)()

    def model(self, params: Params, family: Family, mask: Any) -> Model:
        """The cell on the inputs that `mask` lets through."""
        cell = CELLS[self.cell](self.units)

        def advance(params: Params, state: Any, inputs: Inputs) -> Any:
            return cell(params, state, inputs.features * mask)

        def read(params: Params, state: Any, inputs: Inputs) -> Array:
            return _known_classes(cell.readout(params, state, inputs.features * mask), inputs.known)

        return recurrent_model(advance, read, params, cell.state(), family)

    def curvature(self, size: int) -> Curvature:
        """A full covariance while it is small, one for each unit's weights beyond."""
        return dense(kernel="immediate") if size <= 3 * DENSE_UP_TO else blocks()


@dataclasses.dataclass(frozen=True)
class UsersOwn:
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
            return _known_classes(jnp.reshape(own(params, inputs.features * mask), (-1,)), inputs.known)

        return static_model(apply, params, family)

    def curvature(self, size: int) -> Curvature:
        """A full covariance while it is small."""
        return dense(kernel="immediate") if size <= 3 * DENSE_UP_TO else kronecker()


def _architecture(options: Options, shape: Shape, task: Task) -> Layers | Memory | UsersOwn:
    if options.cell is not None:
        return Memory(options.cell, int(options.model.partition(":")[2]))
    if options.users_own:
        return load_users_network(options.model, shape.columns, task.outputs)
    return Layers(options.hidden)


def _group(
    options: Options,
    shape: Shape,
    task: Task,
    architecture: Any,
    settings: Any,
    *,
    both: bool = True,
    naive: Any = (),
) -> Group:
    """Filters of one architecture: every (prior scale, fading), with the past among the inputs and without it.

    With `naive`, a linear model has members that start at the naive forecast of a series too.
    """
    if not options.forget and not options.single:
        settings = tuple(dict.fromkeys((scale, 0.0) for scale, _ in settings))
    params = architecture.params(options.seed, shape, task.outputs)
    size = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
    curvature = architecture.curvature(size)
    prior = fan_in_prior(params)
    dtype = jax.tree.leaves(params)[0].dtype
    if isinstance(architecture, Layers):
        factor = shape.columns / shape.fan_in
        prior[0] = {name: leaf * factor for name, leaf in prior[0].items()}
    outliers = robust(threshold=OUTLIER_DISTANCE, adaptive=True) if task.family.support == "real" else None
    fisher = sampled(FISHER_DRAWS) if task.outputs > MANY_CLASSES else exact()
    masks = [np.ones(shape.columns)]
    if both and shape.past and shape.past < shape.columns:
        masks.append(np.where(np.arange(shape.columns) < shape.past, 0.0, 1.0))

    starts = np.zeros((1, shape.columns))
    if naive and shape.naive:
        starts = np.concatenate([starts, np.zeros((1, shape.columns))])
        starts[1, : len(shape.naive)] = shape.naive

    def make(value: dict[str, Any]) -> Learner:
        value = jax.tree.map(lambda leaf: leaf.astype(dtype), value)
        own = params
        if "start" in value:
            own = [{**params[0], "weight": params[0]["weight"] + value["start"][:, None]}, *params[1:]]
        model = architecture.model(own, task.family, value["mask"])
        variances = jax.tree.map(lambda variance: variance * value["prior"], prior)
        rates = fading(value["fading"])
        return online(model, prior_cov=variances, rates=rates, curvature=curvature, robust=outliers, fisher=fisher)

    rows = [(scale, rate, mask, starts[0]) for mask in masks for scale, rate in settings]
    rows += [(scale, rate, masks[0], start) for start in starts[1:] for scale, rate in naive]
    values = {
        "prior": np.array([scale for scale, _, _, _ in rows], float),
        "fading": np.array([rate for _, rate, _, _ in rows], float),
        "mask": np.stack([mask for _, _, mask, _ in rows]),
    }
    if len(starts) > 1:
        values["start"] = np.stack([start for _, _, _, start in rows])
    return Group(
        make=make,
        values=values,
        names=tuple(
            f"{architecture.name} prior {scale:g} fading {rate:g}"
            + ("" if mask.all() else " without past")
            + (" around naive" if start.any() else "")
            for scale, rate, mask, start in rows
        ),
    )


def _drawn(seed: int, layer: int, rows: int, columns: int, fan_in: int) -> np.ndarray:
    """Normal weights of variance 1/fan-in; row i does not depend on how many rows there are."""
    parts = [np.random.default_rng((seed, layer, row)).normal(size=columns) for row in range(rows)]
    return np.stack(parts) / np.sqrt(fan_in)


def _known_classes(outputs: Array, known: Array) -> Array:
    """Log-odds of classes that have not been seen are minus infinity; `known` is 0 for numbers."""
    slots = jnp.arange(1, len(outputs) + 1)
    return jnp.where((known == 0) | (slots < known), outputs, UNKNOWN_CLASS)


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
