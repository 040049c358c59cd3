"""Running location and scale of numbers, moved neither by one wild value nor by a few equal ones.

Two sets of moments are kept for every column (Welford): of all values, and of the *core*, from
which values further than OUTSIDE deviations from the centre are left out. A value outside is let in when such values
keep coming (more than half of the last ten or so): then the core's memory is cut short, so that it follows within a few
rows. A core whose spread has fallen far below (a change of units, say) starts again from the recent rows. The first
FIRST_ROWS values are looked at together: their median and median deviation decide which of them belong to the core.

An input that has never moved has no scale. When it first moves, all equal values before count as one: so it is seen at
one deviation, and not at the root of their number. From then on no row is seen further away than n values allow: of
n values none lies further than (n - 1) / sqrt(n) of their deviations from their mean, so |z| <= sqrt(n) always, and one
value at most doubles the variance of all.

A column that mostly repeats one value (an indicator, a count with many zeros) has a core without spread; its scale is
that of all values.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from natkal.typing import Array, Bool, Float

FIRST_ROWS = 16
OUTSIDE = 5.0
FEW = 0.25
"""Of the first values, more than this share outside are no outliers: then all of them are the core."""
CUT_TO = 20.0
"""How many values a core counts for once wild values have become the rule."""
FAR, FAR_CUT_TO = 100.0, 1.0
"""The same where they lie more than FAR deviations away: then the core says nothing of them."""
HELD_ROWS = 1e7
"""How many rows the scale of a whole table counts for."""
RECENT = 1 / 100
FALLEN = 20.0
LONE = 100.0
"""A value whose size is more than this times that of every other is of another order."""
LINEAR_UP_TO = 8.0
"""A standardised value grows like a logarithm beyond, up to 8 + ln(sqrt(n) - 7): no row decides everything."""


class Welford(NamedTuple):
    """How many values, their mean and their variance, entry by entry; no sums, which would stall in float32."""

    seen: Float[Array, "*e"]
    mean: Float[Array, "*e"]
    variance: Float[Array, "*e"]


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
    empty = Welford(zeros, zeros, zeros)
    return Scale(empty, empty, zeros, zeros, jnp.full(shape, jnp.nan, dtype), zeros, zeros)


def observe(scale: Scale, values: Float[Array, "*e"]) -> Scale:
    """One more value of each entry; what is missing, or too large to be squared, changes nothing."""
    present = jnp.isfinite(jnp.square(values)) & jnp.isfinite(jnp.square(values - scale.everything.mean))
    scale = _first_move(scale, values)
    centre, deviation = _moments(scale.core)
    apart = jnp.abs(values - centre)
    outside = present & (apart > OUTSIDE * deviation) & (deviation > 0)
    outside = outside & (scale.core.seen >= FIRST_ROWS)
    strays = scale.strays + 0.1 * (outside - scale.strays)
    rule = strays > 0.5
    cut_to = jnp.where(apart > FAR * deviation, FAR_CUT_TO, CUT_TO)
    cut = jnp.where(rule & outside, jnp.minimum(scale.core.seen, cut_to), scale.core.seen)
    core = _add_values(scale.core._replace(seen=cut), values, present & (~outside | rule))
    count = jnp.minimum(scale.everything.seen + 1, 1 / RECENT)
    away = jnp.where(present, values, 0.0) - scale.level
    level = scale.level + away / count
    spread = scale.spread + (jnp.square(away) * (1 - 1 / count) - scale.spread) / count
    again = values == scale.last
    repeats = scale.repeats + (again - scale.repeats) / count
    now = Scale(
        everything=_add_values(scale.everything, _within_reach(scale.everything, values), present),
        core=core,
        strays=jnp.where(present, strays, scale.strays),
        repeats=jnp.where(present, repeats, scale.repeats),
        last=jnp.where(present, values, scale.last),
        level=jnp.where(present, level, scale.level),
        spread=jnp.where(present, spread, scale.spread),
    )
    fallen = (now.core.seen > 3 / RECENT) & (jnp.sqrt(now.spread) * FALLEN < _moments(now.core)[1])
    return now._replace(core=_restarted(fallen & ~_repeating(now), now))


def settle(scale: Scale, first: Float[Array, "n *e"]) -> Scale:
    """The scale once the first rows are known: the core is what lies near their median."""
    middle = _median(first)
    deviation = 1.5 * _median(jnp.abs(first - middle[None]))
    near = jnp.abs(first - middle[None]) <= OUTSIDE * deviation[None]
    near = (near | (deviation[None] == 0) | _many(~near)) & jnp.isfinite(first)
    count = jnp.maximum(jnp.sum(near, axis=0), 1).astype(first.dtype)
    mean = jnp.sum(jnp.where(near, first, 0.0), axis=0) / count
    variance = jnp.sum(jnp.where(near, jnp.square(first - mean[None]), 0.0), axis=0) / count
    return scale._replace(core=Welford(count, mean, variance))


def without_lone(values: Float[Array, " n"]) -> Float[Array, " n"]:
    """The values, NaN in the place of one that is of another order than all others."""
    sizes = jnp.where(jnp.isfinite(values), jnp.abs(values), 0.0)
    most = jnp.argmax(sizes)
    others = jnp.max(sizes.at[most].set(0.0))
    lone = (jnp.arange(len(sizes)) == most) & (others > 0) & (sizes > LONE * others)
    return jnp.where(lone, jnp.nan, values)


def _many(outside: Bool[Array, "n *e"]) -> Bool[Array, "1 *e"]:
    return jnp.mean(outside, axis=0, keepdims=True) > FEW


def of_table(values: np.ndarray) -> Scale:
    """The scale of all rows of a table (n, *e), NaN where missing, as it is known before the first one is learned.

    The core is what lies near the median, as in `settle`. The moments count for many rows, so that learning the table
    does not move them.
    """
    present = np.isfinite(values)
    filled = np.where(present, values, np.nan)
    some = present.any(axis=0)
    middle = np.nanmedian(np.where(some, filled, 0.0), axis=0)
    deviation = 1.5 * np.nanmedian(np.where(some, np.abs(filled - middle), 0.0), axis=0)
    near = np.abs(filled - middle) <= OUTSIDE * deviation
    near = present & (near | (deviation == 0) | (np.mean(~near, axis=0) > FEW))
    recent = filled[-int(1 / RECENT) :]
    known = np.isfinite(recent).any(axis=0)
    again = (filled[1:] == filled[:-1]).sum(axis=0) / max(len(filled) - 1, 1)
    found: dict[str, Any] = {
        "everything": _welford(filled, present),
        "core": _welford(filled, near),
        "strays": np.zeros(middle.shape),
        "repeats": again,
        "last": filled[-1],
        "level": np.where(known, np.nanmean(np.where(known, recent, 0.0), axis=0), 0.0),
        "spread": np.where(known, np.nanvar(np.where(known, recent, 0.0), axis=0), 0.0),
    }
    return Scale(**found)


def _welford(values: np.ndarray, counts: np.ndarray) -> Welford:
    """The moments of the values that count."""
    seen = counts.sum(axis=0).astype(float)
    held = np.where(seen > 0, HELD_ROWS, 0.0)
    mean = np.where(counts, values, 0.0).sum(axis=0) / np.maximum(seen, 1)
    variance = np.where(counts, np.square(values - mean), 0.0).sum(axis=0) / np.maximum(seen, 1)
    return Welford(held, mean, variance)  # pyright: ignore[reportArgumentType]


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
    farthest = jnp.sqrt(scale.everything.seen)
    return compressed(jnp.clip(z, -farthest, farthest), LINEAR_UP_TO)


def compressed(z: Float[Array, "*e"], linear: float) -> Float[Array, "*e"]:
    """The same numbers up to `linear`, beyond it `linear` plus a logarithm."""
    beyond = jnp.maximum(jnp.abs(z) - linear, 0.0)
    return jnp.where(beyond > 0, jnp.sign(z) * (linear + jnp.log1p(beyond)), z)


def _first_move(scale: Scale, values: Float[Array, "*e"]) -> Scale:
    """Where all values so far were equal and this one is not, they count as one."""
    moved = (_moments(scale.everything)[1] == 0) & jnp.isfinite(values) & (values != scale.last)

    def once(sums: Welford) -> Welford:
        return sums._replace(seen=jnp.where(moved, jnp.minimum(sums.seen, 1.0), sums.seen))

    return scale._replace(everything=once(scale.everything), core=once(scale.core))


def _within_reach(sums: Welford, values: Float[Array, "*e"]) -> Float[Array, "*e"]:
    """The values, no further from the mean than sqrt(n) deviations once the first rows are known."""
    mean, deviation = _moments(sums)
    reach = jnp.sqrt(sums.seen + 1) * deviation
    bounded = (sums.seen >= FIRST_ROWS) & (deviation > 0)
    return jnp.where(bounded, jnp.clip(values, mean - reach, mean + reach), values)


def _repeating(scale: Scale) -> Bool[Array, "*e"]:
    return scale.repeats > 0.5


def _moments(sums: Welford) -> tuple[Array, Array]:
    deviation = jnp.sqrt(sums.variance)
    # rounding of a constant is no spread
    noise = 4 * jnp.finfo(deviation.dtype).eps * jnp.abs(sums.mean)
    return sums.mean, jnp.where(deviation > noise, deviation, 0.0)


def _add_values(sums: Welford, values: Array, counts: Bool[Array, "*e"]) -> Welford:
    """n <- n + 1,  m <- m + (x - m)/n,  v <- v + ((x - m_old)(x - m_new) - v)/n."""
    seen = sums.seen + counts
    share = counts / jnp.maximum(seen, 1.0)
    before = jnp.where(counts, values - sums.mean, 0.0)
    mean = sums.mean + before * share
    after = jnp.where(counts, values - mean, 0.0)
    return Welford(seen=seen, mean=mean, variance=sums.variance + (before * after - sums.variance) * share)


def _restarted(fallen: Bool[Array, "*e"], scale: Scale) -> Welford:
    """A core with the moments of the recent values, where it has fallen."""
    return Welford(
        seen=jnp.where(fallen, 1 / RECENT, scale.core.seen),
        mean=jnp.where(fallen, scale.level, scale.core.mean),
        variance=jnp.where(fallen, scale.spread, scale.core.variance),
    )


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
