"""Rows as a bank sees them, of centre 0 and deviation about 1, and its predictions as the user does."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.banks.bank import value_of
from natkal.banks.mixture import Mixture
from natkal.banks.state import BankInfo
from natkal.banks.units import late_classes, scales
from natkal.banks.units.first_rows import expected_next
from natkal.banks.units.late_classes import LateClasses
from natkal.banks.units.scales import FIRST_ROWS, Scale
from natkal.families.base import Family, as_float
from natkal.typing import Array

FARTHEST = 30.0
"""No prediction lies further from the mean of all targets than so many of their deviations."""
TARGETS_LINEAR_UP_TO = 30.0
"""Of a real target further from the centre than so many deviations the members see a logarithm."""
HELD_FROM = 0.15
"""Such a target is not learned at all if it is not alone: if the recent share of wild ones is above this. When the
scale jumps, what the members have learned outlives the rows until the scale has followed, and holds in the new one.
"""
LARGEST_GROWTH = 1.25
"""A scale that changes by more than this factor with one row jumps: the noise then counts as the same in new units."""
COUNTS_NEAR = 20.0
"""Counts whose mean is larger are divided by mean / 20, so that a filter of log-rates starts near them."""


class ScaledState(NamedTuple):
    """The scales of inputs and targets, the first rows in the user's units, and the state of the bank.

    `late` is there where classes may be known later.
    """

    inputs: Any
    targets: Scale | None
    first_inputs: Any
    first_targets: Any
    rows: Array
    bank: Any  # BankState, or () while only the scales are at work
    late: LateClasses | None = None

    def __repr__(self) -> str:
        return f"ScaledState(rows={self.rows}, bank={self.bank!r})"


class Seen(NamedTuple):
    """What a row is seen with: the scales of inputs, and which classes are known by then."""

    scales: Any
    late: LateClasses | None


class TargetUnits(NamedTuple):
    """Location and scale of the targets; the mean of all of them and how far from it a prediction may lie.

    `early`: so few are known that `first` is predicted.
    """

    location: Array
    scale: Array
    middle: Array
    reach: Array
    early: Array
    first: Array


class Standard(NamedTuple):
    """A row as the bank sees it, and the units of its target, None where it has none.

    `growth` is the scale of the targets after the row over that before it.
    """

    inputs: Any
    target: Any
    units: TargetUnits | None
    growth: Any = None


@dataclasses.dataclass(frozen=True, eq=False)
class Standardiser:
    """What is scaled and how; its state is a `ScaledState`, with or without that of a bank.

    Inputs are scaled by the rows up to and including the present one (they are known before y), real targets by the
    earlier rows. `example` is one row of inputs, for its shapes; `scaled` says which leaves (or entries) of it are to
    be scaled. `spread` is what the user expects of the deviation of a target before any is seen. `alike`, where given,
    says for each entry of a leaf which entry's scale it takes: quantities of one unit stay comparable. `fixed_units`:
    targets keep the units of the first rows, for targets whose mean depends on what was learned, as that of rewards
    does. All of them are learned as they are, however far from the first ones: decisions depend on their mean. Only
    a first target of another order than all other first ones is left out. `late_outputs`, where above 0, is how many
    outputs have classes that may be known later: inputs then have a field `known`, the number of known classes, and
    members see in its place what is added to each output (`late_classes.py`).
    """

    example: Any
    outputs: Family
    scaled: Any
    spread: Any
    alike: Any = None
    fixed_units: bool = False
    late_outputs: int = 0

    def start(self, dtype: Any) -> ScaledState:
        """The state before any row, without that of a bank."""
        shape = self.outputs.unweighted.event_shape
        kept = lambda leaf: _missing((FIRST_ROWS, *jnp.shape(leaf)), _dtype(leaf, dtype))  # noqa: E731
        return ScaledState(
            inputs=jax.tree.map(
                lambda leaf, wanted: scales.start(jnp.shape(leaf), dtype) if np.any(wanted) else None,
                self.example,
                self.scaled,
            ),
            targets=scales.start(shape, dtype) if self.has_units else None,
            first_inputs=jax.tree.map(kept, self.example),
            first_targets=jnp.full((FIRST_ROWS, *self.outputs.event_shape), jnp.nan, dtype) if self.warms_up else None,
            rows=jnp.zeros((), jnp.int32),
            bank=(),
            late=late_classes.start(self.late_outputs, dtype) if self.late_outputs else None,
        )

    def standardise(self, state: ScaledState, inputs: Any, target: Array) -> tuple[ScaledState, "Standard"]:
        """The scales after a row, and the row as the bank sees it: inputs scaled by all rows up to this one, a real
        target by the earlier ones and NaN among the first rows. `state` without the bank's.
        """
        dtype = target.dtype if state.targets is None else state.targets.level.dtype
        y, inputs = as_float(value_of(self.outputs, target), dtype), self._as_example(inputs)
        # a row without a target is no first row of a real target: it is predicted and not kept
        counted = ~jnp.all(jnp.isnan(y)) if self.warms_up else jnp.ones((), bool)
        rows = state.rows + counted
        slot = jnp.minimum(state.rows, FIRST_ROWS - 1)
        kept_now = (state.rows < FIRST_ROWS) & counted
        first_inputs = jax.tree.map(
            lambda kept, leaf: jnp.where(kept_now, kept.at[slot].set(leaf), kept), state.first_inputs, inputs
        )
        full = (rows == FIRST_ROWS) & kept_now
        found, late = self.seen(state, inputs)
        seen = jax.lax.cond(full, lambda: self._settled(found, first_inputs), lambda: found)
        scaled = self.standardised(Seen(seen, late), inputs)
        if late is not None:
            late = late_classes.counted(late, ~jnp.all(jnp.isnan(y)))
        if not self.has_units:
            return ScaledState(seen, None, first_inputs, None, rows, (), late), Standard(scaled, target, None)
        weighted = self.outputs.unweighted is not self.outputs
        seen_y = jnp.where(target[1] > 0, y, jnp.nan) if weighted else y
        assert state.targets is not None
        targets = scales.observe(state.targets, seen_y)
        if self.fixed_units:
            settled = state.rows >= FIRST_ROWS
            targets = jax.tree.map(lambda new, old: jnp.where(settled, old, new), targets, state.targets)
        units = self.target_units(state)
        standard = self._in_units(y, units)
        if self.outputs.support == "real" and not self.fixed_units:
            held = (jnp.abs(standard) > TARGETS_LINEAR_UP_TO) & (targets.strays > HELD_FROM)
            standard = jnp.where(held, jnp.nan, standard)
        first_targets = None
        if self.warms_up:
            standard = jnp.where(state.rows < FIRST_ROWS, jnp.nan, standard)
            first_targets = jnp.where(
                kept_now,
                state.first_targets.at[slot].set(jnp.reshape(target, state.first_targets.shape[1:])),
                state.first_targets,
            )
            if self.fixed_units:
                first_targets = jnp.where(full, scales.without_lone(first_targets), first_targets)
            first = first_targets[:, 0] if weighted else first_targets
            targets = jax.lax.cond(full, lambda: scales.settle(targets, first), lambda: targets)
        after = ScaledState(seen, targets, first_inputs, first_targets, rows, (), late)
        return after, Standard(scaled, self._target(target, standard), units, self._growth(after, units))

    def standardise_again(self, state: ScaledState, inputs: Any, target: Array) -> "Standard":
        """A row in the scales as they are, which it does not change."""
        scaled = self.standardised(Seen(state.inputs, state.late), inputs)
        if not self.has_units:
            return Standard(scaled, target, None)
        units = self.target_units(state)
        standard = self._target(target, self._in_units(value_of(self.outputs, target), units))
        return Standard(scaled, standard, units, jnp.ones_like(units.scale))

    def standardise_only(self, state: ScaledState, inputs: Any) -> "Standard":
        """A row to be predicted: scaled as if it were counted, and not counted; without a target."""
        units = self.target_units(state) if self.has_units else None
        growth = None if units is None else jnp.ones_like(units.scale)
        return Standard(self.standardised(self.seen(state, inputs), inputs), None, units, growth)

    def with_scales(self, state: ScaledState, inputs: Any, targets: np.ndarray) -> ScaledState:
        """A state whose scales are those of all rows of a table (a leading axis), which is known beforehand.

        There are no first rows to wait for, and the coordinates in which the members learn hardly move.
        """
        dtype = state.bank.log_weights.dtype

        def fitting(found: scales.Scale) -> scales.Scale:
            return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), found)

        return state._replace(
            inputs=self._by_leaf(lambda own, leaf: fitting(scales.of_table(leaf)), state.inputs, inputs),
            targets=None if state.targets is None else fitting(scales.of_table(targets)),
            rows=jnp.full_like(state.rows, FIRST_ROWS),
        )

    def _in_units(self, y: Array, units: TargetUnits) -> Array:
        """The value as the members see it."""
        z = (y - units.location) / units.scale
        wild = self.outputs.support == "real" and not self.fixed_units
        return scales.compressed(z, TARGETS_LINEAR_UP_TO) if wild else z

    def _growth(self, after: ScaledState, before: TargetUnits) -> Array:
        """The new scale of the targets over the old one; 1 at a jump and among the first rows."""
        ratio = self.target_units(after).scale / before.scale
        gradual = (ratio < LARGEST_GROWTH) & (ratio > 1 / LARGEST_GROWTH) & ~before.early
        return jnp.where(gradual, ratio, 1.0)

    def _target(self, target: Array, standard: Array) -> Array:
        """The target with this value in the place of its own; its weight stays."""
        if self.outputs.unweighted is self.outputs:
            return standard
        return jnp.stack([standard, target[1].astype(standard.dtype)])

    @property
    def has_units(self) -> bool:
        """Whether targets are learned in units of their own."""
        return self.spread is not None and self.outputs.support in ("real", "count")

    @property
    def warms_up(self) -> bool:
        """Whether the first rows are only predicted, and learned together once their scale is known."""
        return self.has_units and self.outputs.support == "real"

    def seen(self, state: ScaledState, inputs: Any) -> Seen:
        """The scales with this row in them."""
        late = None if state.late is None else late_classes.arrived(state.late, inputs.known)
        found = self._by_leaf(lambda own, leaf: scales.observe(own, leaf), state.inputs, self._as_example(inputs))
        return Seen(found, late)

    def _as_example(self, inputs: Any) -> Any:
        """The row with a number in the shape that the example gives it: (1,) and () are the same input."""
        return jax.tree.map(
            lambda leaf, like: jnp.reshape(leaf, jnp.shape(like)) if jnp.size(leaf) == jnp.size(like) == 1 else leaf,
            inputs,
            self.example,
        )

    def _settled(self, seen: Any, first: Any) -> Any:
        return self._by_leaf(scales.settle, seen, first)

    def standardised(self, seen: Seen, inputs: Any) -> Any:
        """A row in these scales."""
        leaves, structure = jax.tree.flatten(self._as_example(inputs))
        known, wanted = structure.flatten_up_to(seen.scales), structure.flatten_up_to(self.scaled)
        alike = [None] * len(leaves) if self.alike is None else structure.flatten_up_to(self.alike)
        done = [
            _filled(leaf)
            if own is None
            else jnp.where(which, scales.standardised(_as(own, places), leaf), _filled(leaf)).astype(leaf.dtype)
            for own, leaf, which, places in zip(known, leaves, wanted, alike, strict=True)
        ]
        row = structure.unflatten(done)
        return row if seen.late is None else row._replace(known=seen.late.offsets)

    def _by_leaf(self, function: Any, seen: Any, inputs: Any) -> Any:
        leaves, structure = jax.tree.flatten(inputs)
        own = structure.flatten_up_to(seen)
        done = [None if scale is None else function(scale, leaf) for scale, leaf in zip(own, leaves, strict=True)]
        return structure.unflatten(done)

    def target_units(self, state: ScaledState) -> TargetUnits:
        """The units of the targets, from those seen; the user's own spread until there are two."""
        assert state.targets is not None
        centre, deviation = scales.location_scale(state.targets)
        whole = state.targets.everything
        apart = FARTHEST * jnp.sqrt(whole.variance)
        early = jnp.asarray(state.rows < FIRST_ROWS)
        if self.outputs.support == "count":
            unit = jnp.maximum(centre / COUNTS_NEAR, 1.0)
            first = (whole.seen * whole.mean + 0.5) / (whole.seen + 1)  # a rate has a posterior mean like this
            return TargetUnits(jnp.zeros_like(centre), unit, whole.mean, apart + 3 * unit, early, first)
        expected = jnp.broadcast_to(jnp.asarray(self.spread, centre.dtype), centre.shape)
        unit = jnp.where(deviation > 0, deviation, jnp.maximum(jnp.abs(centre), expected))
        first = jax.lax.cond(early, lambda: self._first(state, centre), lambda: centre)
        return TargetUnits(centre, unit, whole.mean, jnp.maximum(apart, FARTHEST * unit), early, first)

    def _first(self, state: ScaledState, centre: Array) -> Array:
        """The prediction of a real target among the first rows; rewards come in the order of decisions, not of time."""
        if self.fixed_units:
            return centre
        weighted = self.outputs.unweighted is not self.outputs
        known = state.first_targets[:, 0] if weighted else state.first_targets
        return expected_next(known, centre).astype(centre.dtype)

    def in_users_units(self, mixture: Mixture, units: TargetUnits | None) -> Mixture:
        """A prediction of the bank in the units of the targets, within reach of all of them; at first, `first`."""
        if units is None:
            return mixture

        def placed(mean: Array) -> Array:
            low, high = units.middle - units.reach, units.middle + units.reach
            near = jnp.clip(mean, jnp.reshape(low, (-1,)), jnp.reshape(high, (-1,)))
            return jnp.where(units.early, jnp.reshape(units.first, (-1,)), near)

        return mixture.rescaled(units.location, units.scale).with_means(placed)

    def log_prob(self, row: "Standard", info: BankInfo, prediction: Mixture, y: Array) -> Array:
        """Log p(y) of an observation that counts once; `prediction` is in the user's units.

        Of a real target it is log p(z) - log scale where the bank saw z itself, with weight 1. Values far outside, the
        first rows, other weights, and counts, whose units have no density, have it computed anew.
        """
        if self.outputs.support == "count":
            return prediction.log_prob_one(y)
        seen = info.observed
        if self.outputs.unweighted is not self.outputs:
            assert row.target is not None
            seen = seen & (row.target[1] == 1)
        known = info.log_prob
        if row.units is not None:
            known = known - jnp.sum(jnp.where(jnp.isnan(y), 0.0, jnp.log(row.units.scale)))
            seen = seen & ~jnp.any(jnp.abs(y - row.units.location) > TARGETS_LINEAR_UP_TO * row.units.scale)
        return jax.lax.cond(seen, lambda: known, lambda: prediction.log_prob_one(y))


def _as(scale: Scale, places: Any) -> Scale:
    """The scale of each entry, taken from the entry that `places` names."""
    return scale if places is None else jax.tree.map(lambda leaf: leaf[places], scale)


def all_real(example: Any) -> Any:
    """Every leaf of real numbers is to be scaled."""
    return jax.tree.map(lambda leaf: bool(jnp.issubdtype(jnp.result_type(leaf), jnp.floating)), example)


def _dtype(leaf: Any, dtype: Any) -> Any:
    return dtype if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else jnp.result_type(leaf)


def _filled(leaf: Array) -> Array:
    """An entry that is not scaled, 0 where it is missing."""
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    return jnp.where(jnp.isnan(leaf), 0.0, leaf)


def _missing(shape: tuple[int, ...], dtype: Any) -> Array:
    """Entries that nothing was seen of: NaN, or 0 where there is none."""
    return jnp.full(shape, jnp.nan if jnp.issubdtype(dtype, jnp.floating) else 0, dtype)
