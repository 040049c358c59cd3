"""Which learner a table gets: the one place that chooses, for the command line, scikit-learn, river and `nk.learn`.

`auto` is a mixture over architectures, each with several priors and fadings and with and without the target's past:
a linear model, a network of one hidden layer and one of two, with a Kronecker-factored covariance for each layer, and
for a series a recurrent network of RECURRENT_UNITS gated units with a full covariance and exact sensitivities. A table
whose rows are in order has recurrent networks of two kinds, MEMORIES, that remember inputs and not targets.

The answer is a `BankSpec`, names and numbers, from which the learner is built for as many columns and classes as there
are: it is asked for once, and what comes later adds and removes no member (banks/resize.py).

With a limit of memory the mixture is the largest of SIZES whose state fits. With a budget in microseconds,
architectures of which one member does not fit into it beside a linear one are left out, and the selection lets no more
members run than fit. Times are estimated from the work of a step, so that the same rows give the same numbers on any
machine.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from natkal.banks.auto import OUTLIER_DISTANCE, SHARE, expected_spread
from natkal.banks.bank import Bank
from natkal.banks.group import Group
from natkal.banks.scaled import Scaled
from natkal.banks.selection import Selection
from natkal.banks.spec import BankSpec, GroupSpec, MemberSpec
from natkal.banks.units.standardise import Standardiser
from natkal.byte_sizes import readable
from natkal.compiling.float64 import float64
from natkal.engine import Learner, exact, fading, online, robust, sampled
from natkal.engine.plan import estimate
from natkal.errors import StreamError
from natkal.families import Family
from natkal.laws import Counted, Laws, PlugIn, Student, laws_for, marginal_for
from natkal.settings.options import MAPS, SINGLE_FADING, SINGLE_PRIOR_SCALE, Options
from natkal.tables.learner.architectures import (
    GRIDS,
    NAMED_SIZES,
    Inputs,
    Shape,
    grows_into,
    make_architecture,
)
from natkal.tables.learner.tasks import Task

LINEAR = ((10.0, 1e-3), (3.0, 5e-3), (30.0, 0.0), (1.0, 0.0), (10.0, 2e-2), (1.0, 1e-3))
"""(prior scale, fading) of the linear members."""
NAIVE = ((0.3, 0.0), (3.0, 0.0), (10.0, 1e-3))
"""(prior scale, fading) of the linear members whose prior is centred on a naive forecast of a series."""
PRODUCTS = ((10.0, 0.0), (1.0, 0.0), (10.0, 1e-3))
"""(prior scale, fading) of the members that are linear in squares and products of two columns."""
NETWORK = ((10.0, 0.0), (10.0, 1e-3), (3.0, 5e-3))
"""(prior scale, fading) of the members of each network."""
TILED = {False: ((2.0, 0.0), 4.0, 16.0), True: ((10.0, 0.0), 3.0, 9.0)}
"""(prior scale, fading) of the members with cells and their reaches: of numbers and counts, and of classes."""
MOST_TILED, MOST_TILED_OUTPUTS, LEAST_CELLS = 64, 6, 64
"""The most inputs and outputs of members with cells (more take long to compile), and the least cells of a grid."""
RECURRENT_UNITS = 8
MEMORIES = ("gru:16", "lru:64")
"""Recurrent groups of a table whose rows are in order, where they cost no more than the largest group of networks."""
REMEMBERING = ((10.0, 1e-4), (10.0, 1e-3))
"""(prior scale, fading) of their members."""


class Size(NamedTuple):
    """Hidden layers of the networks in a mixture, and how many cells a member with cells has."""

    networks: tuple[tuple[int, ...], ...]
    cells: int


SIZES = (
    Size(((64,), (128, 128)), 1 << 18),
    Size(((64,), (64, 64)), 1 << 17),
    Size(((64,), (32, 32)), 1 << 15),
    Size(((64,),), 1 << 14),
    Size(((32,),), 1 << 12),
    Size(((16,),), 0),
    Size((), 0),
)
"""The first one unless memory is limited."""
ROW_MICROSECONDS, STEP_MICROSECONDS, ROW_WORK, GRAM_WORK = 10.0, 2.0, 1.3e3, 2e4
"""Rough times on one core: a row without its members (scales, weights), and a member's step, which takes this and so
many multiply-adds per microsecond: of a row with the state, which waits for memory, and of rows with rows, which does
not.
"""
MANY_CLASSES, FISHER_DRAWS = 64, 4
"""Beyond so many classes the Fisher matrix is estimated from a few draws: the exact one costs classes^3 per row."""


def choose(
    options: Options, shape: Shape, task: Task, keyed: bool = False, size: int = 0, in_order: bool = True
) -> BankSpec:
    """The learner for a table that begins with rows of this shape; it is asked once, and the members stay its own.

    `size` is the place in SIZES of its networks. `in_order`: rows are learned in the order in which they come.
    """
    if options.single:
        groups = [_single(options, shape)]
    else:
        groups = _groups(options, shape, task, keyed, SIZES[size], ordered=in_order and options.forget)
    many = sum(len(group.members) for group in groups) > 2
    return BankSpec(
        groups=tuple(groups),
        one_law=options.single,
        selects=not options.single and many and not keyed and options.budget != "best",
        budget=_for_members(options),
        standardize=options.standardize,
        seed=options.seed,
    )


@functools.lru_cache(maxsize=64)
def build(spec: BankSpec, shape: Shape, task: Task) -> Scaled:
    """The learner that a spec names, for rows of this shape; the same object, compiled once, for the same question."""
    groups = tuple(build_group(group, spec.seed, shape, task) for group in spec.groups)
    selection = None
    if spec.selects:
        costs = () if spec.budget is None else tuple(microseconds(group) for group in groups)
        selection = Selection(budget=spec.budget, costs=costs)
    laws = _few_laws(task.family) if spec.one_law else laws_for(task.family)
    bank = Bank(groups, laws, SHARE, selection, marginal=marginal_for(task.family))
    mask = np.array(shape.scaled) if spec.standardize else np.zeros(shape.columns, bool)
    alike = np.arange(shape.columns)
    if shape.naive:
        alike[: shape.past] = 0  # earlier targets are all in the units of the last one
    units = Standardiser(
        example=Inputs(np.zeros(shape.columns), np.zeros((), np.int32)),
        outputs=task.family,
        scaled=Inputs(mask, False),
        spread=1.0 if task.family.support == "count" else expected_spread(task.family.unweighted),
        alike=Inputs(alike, None) if shape.naive else None,
        late_outputs=task.outputs if task.classes else 0,
    )
    named = all(is_known(group.architecture) for group in spec.groups)  # what a user's own does, no name says
    return Scaled(bank=bank, units=units, name=("table", spec, shape, task) if named else None)


def check_spec(spec: BankSpec, options: Options) -> None:
    """Refuse a spec, read from a file, of another model than these options name: no file names code to run."""
    named = {group.architecture for group in spec.groups}
    unknown = {name for name in named if not is_known(name)}
    if unknown - {options.model} or (options.model != "auto" and options.model not in named):
        raise ValueError(f"specs: {', '.join(sorted(named))} is not what model {options.model} makes")


@float64
def must_restart(spec: BankSpec, small: Shape, task: Task, large: Shape, wide: Task) -> bool:
    """Whether nothing tells where the parameters of a network of the user's own are in the larger one."""
    own = [group for group in spec.groups if not is_known(group.architecture)]
    if not own:
        return False
    made: list[Any] = [
        make_architecture(own[0], spec.seed, shape, of.outputs) for shape, of in ((small, task), (large, wide))
    ]
    return not grows_into(made[0], made[1], small.columns, large.columns - small.columns)


def is_known(architecture: str) -> bool:
    """Whether it is one of natkal's own."""
    return architecture in MAPS or architecture.partition(":")[0] in NAMED_SIZES


def choose_within(
    options: Options, shapes: Sequence[Shape], tasks: Sequence[Task], keyed: bool, in_order: bool
) -> tuple[BankSpec, ...]:
    """For each target the largest mixture such that all states together fit into the memory that was allowed."""
    sizes = range(len(SIZES)) if options.model == "auto" and not (options.single or keyed) else range(1)
    needed = 0
    for size in sizes:
        pairs = zip(shapes, tasks, strict=True)
        specs = tuple(choose(options, shape, task, keyed, size, in_order) for shape, task in pairs)
        if options.bytes is None:
            return specs
        needed = bytes_of(specs, shapes, tasks)
        if needed <= options.bytes:
            return specs
    raise StreamError(
        f"memory: {options.memory} is too little, the smallest learner of these rows takes {readable(needed)}"
    )


def within_memory(
    options: Options,
    specs: Sequence[BankSpec],
    shapes: Sequence[Shape],
    tasks: Sequence[Task],
    weights: Sequence[Mapping[str, float]],
) -> tuple[BankSpec, ...]:
    """The members that still fit once a table has grown: those of least weight leave, the heaviest of a target never.

    `weights` has those of each target's members by name.
    """
    left = list(specs)
    while options.bytes is not None and (needed := bytes_of(left, shapes, tasks)) > options.bytes:
        light = [
            (weights[at][name], at, name)
            for at, spec in enumerate(left)
            for name in spec.member_names
            if name != max(spec.member_names, key=weights[at].__getitem__)
        ]
        if not light:
            raise StreamError(
                f"memory: {options.memory} is too little for {max(shape.columns for shape in shapes)} inputs and "
                f"{max(task.outputs for task in tasks)} outputs, the heaviest member alone takes {readable(needed)}"
            )
        _, at, name = min(light)
        left[at] = left[at].without(name)
    return tuple(left)


@float64
def bytes_of(specs: Sequence[BankSpec], shapes: Sequence[Shape], tasks: Sequence[Task]) -> int:
    """What the states of all targets take; nothing is allocated."""
    learners = [build(*one) for one in zip(specs, shapes, tasks, strict=True)]
    leaves = jax.tree.leaves([jax.eval_shape(learner.init) for learner in learners])
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves if hasattr(leaf.dtype, "itemsize"))


def microseconds(group: Group) -> float:
    """About how long a step of one member takes."""
    first: Any = group.first
    work = estimate(first.model, first.curvature)[2]
    gram = first.model.outputs.raw_dim**2 * first.model.size
    return STEP_MICROSECONDS + (work - gram) / ROW_WORK + gram / GRAM_WORK


def _groups(options: Options, shape: Shape, task: Task, keyed: bool, size: Size, ordered: bool) -> list[GroupSpec]:
    """The architectures of the mixture; a model for each key gets linear ones only, since there are many of it."""
    if options.model != "auto":
        settings = {"linear": LINEAR, "products": PRODUCTS}.get(options.model, NETWORK)
        return [_group(options, shape, options.model, settings, naive=NAIVE if options.model == "linear" else ())]
    groups = [_group(options, shape, "linear", LINEAR, naive=NAIVE)]
    if keyed or options.budget == "fast":
        return groups
    if 1 < shape.columns - shape.past <= MOST_TILED and not shape.series and len(size.networks) > 1:
        groups.append(_group(options, shape, "products", PRODUCTS))
    few = shape.columns <= MOST_TILED and task.outputs <= MOST_TILED_OUTPUTS
    if few and not shape.series and size.cells >= LEAST_CELLS * GRIDS * task.outputs:
        settings, *reaches = TILED[bool(task.classes)]
        groups += [_group(options, shape, f"tiles:{size.cells}", (settings,), reach=reach) for reach in reaches]
    networks = ("mlp:" + ",".join(map(str, hidden)) for hidden in size.networks)
    groups += [_group(options, shape, network, NETWORK, dtype="float32") for network in networks]
    if shape.series and shape.past and not task.classes and len(size.networks) > 1:
        groups.append(_group(options, shape, f"gru:{RECURRENT_UNITS}", NETWORK, both=False))
    if ordered and few and not shape.series and len(size.networks) > 1:
        cost = lambda group: len(group.members) * microseconds(build_group(group, options.seed, shape, task))  # noqa: E731
        most = cost(groups[-1])
        groups += [group for group in (_remembering(shape, name) for name in MEMORIES) if cost(group) <= most]
    limit = _for_members(options)
    if limit is None:
        return groups
    first, *costs = (microseconds(build_group(group, options.seed, shape, task)) for group in groups)
    return [groups[0], *(group for group, cost in zip(groups[1:], costs, strict=True) if first + cost <= limit)]


def _remembering(shape: Shape, architecture: str) -> GroupSpec:
    """Recurrent filters that remember the inputs of earlier rows, not their targets."""
    inputs = "without past" if shape.past else "all"
    members = tuple(
        MemberSpec(f"{architecture} prior {scale:g} fading {rate:g}", scale, rate, inputs)
        for scale, rate in REMEMBERING
    )
    return GroupSpec(architecture, "float32", members)


def _for_members(options: Options) -> float | None:
    """What a budget in microseconds leaves for the members."""
    return None if options.microseconds is None else options.microseconds - ROW_MICROSECONDS


def _single(options: Options, shape: Shape) -> GroupSpec:
    prior = SINGLE_PRIOR_SCALE if options.prior_scale is None else options.prior_scale
    usual = SINGLE_FADING if options.forget else 0.0
    rate = usual if options.fading is None else options.fading
    model = "linear" if options.model == "auto" else options.model
    return _group(options, shape, model, ((prior, rate),), both=False)


def _few_laws(family: Family) -> Laws:
    """One predictive law for one filter; the noise of a number is learned all the same."""
    inner = family.unweighted
    if inner.support == "real":
        return Counted(Student((2000.0,), (1.0,)))
    return Counted(PlugIn(inner)) if inner.support == "classes" else laws_for(family)


def _group(
    options: Options,
    shape: Shape,
    architecture: str,
    settings: Sequence[tuple[float, float]],
    *,
    dtype: str = "float64",
    both: bool = True,
    naive: Sequence[tuple[float, float]] = (),
    reach: float | None = None,
) -> GroupSpec:
    """Filters of one architecture: every (prior scale, fading), with the past among the inputs and without it.

    With `naive`, a linear model has members that start at the naive forecast of a series too.
    """
    if not options.forget and not options.single:
        settings = tuple(dict.fromkeys((scale, 0.0) for scale, _ in settings))
    seen = ["all"]
    if not shape.alone and 0 < shape.past < shape.columns:
        # a group whose table is large has one member, so that its loop changes the table in place
        seen = ["without past"] if reach is not None else [*seen, "without past"] if both else seen
    rows = [(scale, rate, inputs, "zero") for inputs in seen for scale, rate in settings]
    if shape.naive:
        rows += [(scale, rate, seen[0], "naive") for scale, rate in naive]
    shown = architecture if reach is None else architecture.partition(":")[0]
    members = tuple(
        MemberSpec(
            name=f"{shown} prior {scale:g} fading {rate:g}"
            + ("" if reach is None else f" reach {reach:g}")
            + ("" if inputs == "all" else " without past")
            + ("" if start == "zero" else " around naive"),
            prior=scale,
            fading=rate,
            inputs=inputs,
            start=start,
            reach=reach,
        )
        for scale, rate, inputs, start in rows
    )
    return GroupSpec(architecture, dtype, members)


def build_group(spec: GroupSpec, seed: int, shape: Shape, task: Task) -> Group:
    """The members of a group for rows of this shape: the numbers in which they differ, and how to make one of them."""
    architecture: Any = make_architecture(spec, seed, shape, task.outputs)
    params = architecture.params(seed, shape, task.outputs)
    curvature = architecture.curvature(sum(np.size(leaf) for leaf in jax.tree.leaves(params)))
    prior = architecture.prior(params, shape)
    dtype = jax.tree.leaves(params)[0].dtype
    outliers = robust(threshold=OUTLIER_DISTANCE, adaptive=True) if task.family.support == "real" else None
    fisher = sampled(FISHER_DRAWS) if task.outputs > MANY_CLASSES else exact()

    def make(value: dict[str, Any]) -> Learner:
        value = jax.tree.map(lambda leaf: leaf.astype(dtype), value)
        own = params
        if "start" in value:
            own = [{**params[0], "weight": params[0]["weight"] + value["start"][:, None]}, *params[1:]]
        model = architecture.model(own, task.family, value)
        variances = jax.tree.map(lambda variance: variance * value["prior"], prior)
        rates = fading(value["fading"])
        inner = online(model, prior_cov=variances, rates=rates, curvature=curvature, robust=outliers, fisher=fisher)
        return architecture.learner(inner, value)

    masks = {"all": np.ones(shape.columns), "without past": np.where(shape.is_past, 0.0, 1.0)}
    starts = {"zero": np.zeros(shape.columns), "naive": np.zeros(shape.columns)}
    starts["naive"][: len(shape.naive)] = shape.naive
    values = {
        "prior": np.array([member.prior for member in spec.members], float),
        "fading": np.array([member.fading for member in spec.members], float),
        "mask": np.stack([masks[member.inputs] for member in spec.members]),
    }
    if any(member.start == "naive" for member in spec.members):
        values["start"] = np.stack([starts[member.start] for member in spec.members])
    if any(member.reach is not None for member in spec.members):
        values["reach"] = np.array([member.reach for member in spec.members], float)
    return Group(make=make, values=values, names=tuple(member.name for member in spec.members))
