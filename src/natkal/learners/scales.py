"""Running location and scale of numbers, moved neither by one wild value nor by a few equal ones.

Two sets of moments are kept for every column (Welford, with compensated sums): of all values, and of the *core*, from
which values further than OUTSIDE deviations from the centre are left out. A value outside is let in when such values
keep coming (more than half of the last ten or so): then the core's memory is cut short, so that it follows within a few
rows. A core whose spread has fallen far below (a change of units, say) starts again from the recent rows. The first
FIRST_ROWS values are looked at together: their median and median deviation decide which of them belong to the core.

A column that mostly repeats one value (an indicator, a count with many zeros) has a core without spread; its scale is
that of all values.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.typing import Array, Bool, Float

FIRST_ROWS = 16
OUTSIDE = 5.0
CUT_TO = 20.0
"""How many values a core counts for once wild values have become the rule."""
RECENT = 1 / 100
FALLEN = 20.0
LINEAR_UP_TO = 8.0
"""A standardised value grows like a logarithm beyond: no input is so large that one row decides everything."""


class Double(NamedTuple):
    """A sum of two floats that together hold twice the digits: float32 sums as accurate as float64 ones."""

    high: Float[Array, "*e"]
    low: Float[Array, "*e"]


class Welford(NamedTuple):
    """How many values, their mean and the sum of squared deviations from it, entry by entry."""

    seen: Double
    mean: Double
    squares: Double


class Scale(NamedTuple):
    """What is known of the scale of each entry.

    `strays` is the recent share of values outside the core, `repeats` that of values equal to the one before them;
    `level` and `spread` are the mean and variance of the recent values.
    """

    everything: Welford
    core: Welford
    strays: Float[Array, "*e"]
    repeats: Float[Array, "*e"]
    last: Float[Array, "*e"]
    level: Float[Array, "*e"]
    spread: Float[Array, "*e"]


def start(shape: tuple[int, ...], dtype: Any) -> Scale:
    """Nothing seen."""
    zeros = jnp.zeros(shape, dtype)
    double = Double(zeros, zeros)
    empty = Welford(double, double, double)
    return Scale(empty, empty, zeros, zeros, jnp.full(shape, jnp.nan, dtype), zeros, zeros)


def observe(scale: Scale, values: Float[Array, "*e"]) -> Scale:
    """One more value of each entry; a NaN is missing and changes nothing."""
    present = jnp.isfinite(values)
    centre, deviation = _moments(scale.core)
    outside = present & (jnp.abs(values - centre) > OUTSIDE * deviation) & (deviation > 0)
    outside = outside & (scale.core.seen.high >= FIRST_ROWS)
    strays = scale.strays + 0.1 * (outside - scale.strays)
    rule = strays > 0.5
    core = _kept(rule & outside, scale.core, CUT_TO)
    core = _add_values(core, values, present & (~outside | rule))
    count = jnp.minimum(scale.everything.seen.high + 1, 1 / RECENT)
    away = jnp.where(present, values, 0.0) - scale.level
    level = scale.level + away / count
    spread = scale.spread + (jnp.square(away) * (1 - 1 / count) - scale.spread) / count
    again = values == scale.last
    repeats = scale.repeats + (again - scale.repeats) / count
    now = Scale(
        everything=_add_values(scale.everything, values, present),
        core=core,
        strays=jnp.where(present, strays, scale.strays),
        repeats=jnp.where(present, repeats, scale.repeats),
        last=jnp.where(present, values, scale.last),
        level=jnp.where(present, level, scale.level),
        spread=jnp.where(present, spread, scale.spread),
    )
    fallen = (now.core.seen.high > 3 / RECENT) & (jnp.sqrt(now.spread) * FALLEN < _moments(now.core)[1])
    return now._replace(core=_restarted(fallen & ~_repeating(now), now))


def settle(scale: Scale, first: Float[Array, "n *e"]) -> Scale:
    """The scale once the first rows are known: the core is what lies near their median."""
    middle = _median(first)
    deviation = 1.5 * _median(jnp.abs(first - middle[None]))
    near = jnp.abs(first - middle[None]) <= OUTSIDE * deviation[None]
    near = (near | (deviation[None] == 0)) & jnp.isfinite(first)
    core = jax.tree.map(jnp.zeros_like, scale.core)
    for row, inside in zip(first, near, strict=True):
        core = _add_values(core, row, inside)
    return scale._replace(core=core)


def location_scale(scale: Scale) -> tuple[Float[Array, "*e"], Float[Array, "*e"]]:
    """Centre and standard deviation so far; the deviation is 0 until two different values have been seen."""
    centre, deviation = _moments(scale.core)
    whole_centre, whole_deviation = _moments(scale.everything)
    whole = _repeating(scale) | (deviation == 0)
    return jnp.where(whole, whole_centre, centre), jnp.where(whole, whole_deviation, deviation)


def standardised(scale: Scale, values: Float[Array, "*e"]) -> Float[Array, "*e"]:
    """(x - centre) / deviation, a logarithm beyond `LINEAR_UP_TO`; 0 where x is missing or there is no scale yet."""
    centre, deviation = location_scale(scale)
    known = (deviation > 0) & jnp.isfinite(values)
    z = jnp.where(known, (values - centre) / jnp.where(known, deviation, 1.0), 0.0)
    beyond = jnp.maximum(jnp.abs(z) - LINEAR_UP_TO, 0.0)
    return jnp.where(beyond > 0, jnp.sign(z) * (LINEAR_UP_TO + jnp.log1p(beyond)), z)


def _repeating(scale: Scale) -> Bool[Array, "*e"]:
    return scale.repeats > 0.5


def _moments(sums: Welford) -> tuple[Array, Array]:
    count = jnp.maximum(sums.seen.high, 1.0)
    deviation = jnp.sqrt(jnp.maximum(sums.squares.high, 0.0) / count)
    # rounding of a constant is no spread
    noise = 4 * jnp.finfo(deviation.dtype).eps * jnp.abs(sums.mean.high)
    return sums.mean.high, jnp.where(deviation > noise, deviation, 0.0)


def _add_values(sums: Welford, values: Array, counts: Bool[Array, "*e"]) -> Welford:
    """n <- n + 1,  m <- m + (x - m)/n,  s <- s + (x - m_old)(x - m_new)."""
    seen = _add(sums.seen, counts.astype(values.dtype))
    count = jnp.maximum(seen.high, 1.0)
    before = jnp.where(counts, _from(values, sums.mean), 0.0)
    mean = _add(sums.mean, before / count)
    after = jnp.where(counts, _from(values, mean), 0.0)
    return Welford(seen=seen, mean=mean, squares=_add(sums.squares, before * after))


def _kept(cut: Bool[Array, "*e"], sums: Welford, count: float) -> Welford:
    """The same mean and deviation, counting for at most `count` values where `cut`."""
    share = jnp.where(cut, jnp.minimum(1.0, count / jnp.maximum(sums.seen.high, 1.0)), 1.0)
    shrink = lambda double: Double(double.high * share, double.low * share)  # noqa: E731
    return Welford(seen=shrink(sums.seen), mean=sums.mean, squares=shrink(sums.squares))


def _restarted(fallen: Bool[Array, "*e"], scale: Scale) -> Welford:
    """A core with the moments of the recent values, where it has fallen."""
    zeros = jnp.zeros_like(scale.level)
    count = jnp.full_like(scale.level, 1 / RECENT)
    fresh = Welford(Double(count, zeros), Double(scale.level, zeros), Double(count * scale.spread, zeros))
    return jax.tree.map(lambda new, old: jnp.where(fallen, new, old), fresh, scale.core)


def _median(values: Float[Array, "n *e"]) -> Float[Array, "*e"]:
    """The lower median of each entry over the rows, by counting; NaNs count as largest."""
    filled = jnp.where(jnp.isfinite(values), values, jnp.inf)
    index = jnp.arange(len(values)).reshape(-1, *(1,) * (values.ndim - 1))
    below = filled[None] < filled[:, None]
    tie = (filled[None] == filled[:, None]) & (index[None] < index[:, None])
    rank = jnp.sum(below | tie, axis=1)
    middle = jnp.maximum(jnp.sum(jnp.isfinite(values), axis=0) - 1, 0) // 2
    found = jnp.sum(jnp.where(rank == middle[None], filled, 0.0), axis=0)
    return jnp.where(jnp.isfinite(found), found, 0.0)


def _from(values: Array, mean: Double) -> Array:
    return (values - mean.high) - mean.low


def _add(total: Double, value: Array) -> Double:
    """Knuth's two-sum, its error kept."""
    high = total.high + value
    virtual = high - total.high
    error = (total.high - (high - virtual)) + (value - virtual)
    low = total.low + error
    carried = high + low
    return Double(high=carried, low=low - (carried - high))
