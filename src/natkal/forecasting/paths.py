"""Several rows ahead: paths of the mixture, each drawn target fed back as a past target, once for every door.

The columns of the rows to come are numbers of the same encoding as the rows that were learned. `Future.windows` has
one or several versions of them (versions, horizon, columns): where columns are not known ahead, each path takes one of
the versions, such as stretches of earlier rows, so that what is not known of the columns widens the intervals too.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.banks import paths
from natkal.banks.scaled import Scaled
from natkal.compiling.policy import compile_lightly, compile_quickly
from natkal.errors import StreamError
from natkal.forecasting.combination import Kept, combined_paths
from natkal.tables.learner.architectures import Inputs
from natkal.tables.learner.past import INDICATORS, MEAN_RATE, Past
from natkal.tables.learner.tasks import LEVEL, Task
from natkal.tables.table import TableLearner
from natkal.typing import Array, Float

QUANTILES = tuple(round(0.05 * step, 2) for step in range(1, 20))
"""Probabilities of the quantiles of a forecast: 5, 10, .. 95 percent."""


class Means(NamedTuple):
    """`SeasonalMeans` inside a program: sums and weights of the places that a path comes to, the next one first.

    A path of `horizon` steps comes to `horizon` places at most, whatever the period: programs do not depend on it.
    """

    sums: Any
    previous: Any
    weights: Any
    last: Any

    def inputs(self, place: Array, season: Array) -> Float[Array, " 2"]:
        """The means at a place, and before it."""
        both = jnp.stack([self.sums[place], self.previous[place]])
        weight = self.weights[place]
        return jnp.where((season > 0) & (weight > 0), both / jnp.where(weight > 0, weight, 1.0), jnp.nan)

    def after(self, place: Array, value: Array) -> "Means":
        """One more value, at this place."""

        def added(sums: Array, new: Any) -> Array:
            return sums.at[place].set((1 - MEAN_RATE) * sums[place] + new)

        return Means(added(self.sums, value), added(self.previous, self.last), added(self.weights, 1.0), value)

    @classmethod
    def of(cls, past: Past, key: str, horizon: int) -> "Means":
        """Those of a key."""
        found = past.means.get(key)
        if found is None or not past.season:
            none = np.zeros(horizon)
            return cls(none, none, none, np.float64(0.0))
        places = (found.count + np.arange(horizon)) % len(found.sums)
        return cls(found.sums[places], found.previous[places], found.weights[places], np.float64(found.last))


class Future(NamedTuple):
    """What a path starts from: for each step and lag the known target, or the step of the path it is, else -1.

    A target that is neither is NaN. `windows` has the columns to come. `known` is how many classes are known; 0 for
    numbers. `floor` is 0 for a series that was never negative, and paths stay above it; minus infinity for others.
    """

    lagged: Any
    own: Any
    season: Any
    means: Means
    windows: Any
    known: Any
    floor: Any

    def place(self, step: Array) -> Array:
        """The place of a step in the period, counted from the next row."""
        return step % jnp.maximum(self.season, 1)

    @classmethod
    def of(cls, past: Past, key: str, windows: np.ndarray, known: int) -> "Future":
        """That of a key; `windows` (versions, horizon, columns)."""
        horizon = windows.shape[1]
        values = np.array(past.known.get(key, ()), float)
        lags = np.array(past.used_lags, int)
        place = np.arange(horizon)[:, None] - lags[None]
        there = (lags > 0) & (place < 0) & (place >= -len(values))
        return cls(
            lagged=np.where(there, np.append(values, np.nan)[np.where(there, len(values) + place, -1)], np.nan),
            own=np.where((lags > 0) & (place >= 0), place, -1).astype(np.int32),
            season=np.int32(past.season),
            means=Means.of(past, key, horizon),
            windows=np.asarray(windows, float),
            known=np.int32(known),
            floor=np.float64(0.0 if len(values) and values.min() >= 0 else -np.inf),
        )


@dataclasses.dataclass(frozen=True)
class PastShape:
    """How earlier targets become inputs: as `Past` has them."""

    classes: int
    seasonal: bool
    columns: int

    @classmethod
    def of(cls, past: Past) -> "PastShape":
        """That of a past."""
        return cls(past.classes, past.named is None, past.columns)

    def inputs(self, future: Future, means: Means, drawn: Float[Array, " h"], step: Array) -> Float[Array, " columns"]:
        """`Past.inputs` inside a program; `drawn` are the targets of the path, `means` those after them."""
        if not self.columns:
            return jnp.zeros(0, drawn.dtype)
        own = future.own[step]
        values = jnp.where(own >= 0, drawn[jnp.maximum(own, 0)], future.lagged[step])
        if self.classes > 2:
            width = min(self.classes, INDICATORS)
            return (values[:, None] == jnp.arange(width)[None]).astype(values.dtype).ravel()
        if self.classes == 2:
            return jnp.nan_to_num(jnp.where(values < 2, 2.0 * values - 1.0, 0.0))
        if not self.seasonal:
            return values
        return jnp.concatenate([values, means.inputs(future.place(step), future.season)])


@functools.lru_cache(maxsize=32)
def _program(
    learner: Scaled, task: Task, past: PastShape, horizon: int, rounds: int, often: bool
) -> Callable[..., Array]:
    """(state, key, future) -> paths (n, horizon) in the user's units; compiled once for each horizon.

    A program that is not run often is compiled in a hurry.
    """

    def draw(state: Any, key: Array, future: Future) -> Array:
        dtype = future.lagged.dtype

        def start(key: Array) -> Any:
            version = jax.random.randint(key, (), 0, len(future.windows))
            return jnp.zeros(horizon, dtype), future.means, version

        def at(memory: Any, step: Array) -> Inputs:
            drawn, means, version = memory
            before = past.inputs(future, means, drawn, step)
            return Inputs(jnp.concatenate([before, future.windows[version, step]]), future.known)

        def users(y: Array) -> Array:
            return jnp.maximum(task.from_learner(y).astype(dtype), future.floor)

        def after(memory: Any, step: Array, y: Array) -> Any:
            drawn, means, version = memory
            later = means.after(future.place(step), users(y))
            return drawn.at[step].set(users(y)), later, version

        return users(learner.paths(state, key, paths.Inputs(start, at, after), horizon, rounds))

    name = None if learner.name is None else ("paths", learner.name, task, past, horizon, rounds)
    return compile_lightly(draw, name=name) if often else compile_quickly(draw, name=name)


def forecast(
    table: TableLearner,
    horizon: int,
    future: np.ndarray | None = None,
    *,
    level: float = LEVEL,
    key: str | None = None,
    target: int = 0,
) -> list[dict[str, Any]]:
    """The next `horizon` rows of a target, of one key where there are several; learns nothing.

    `future` (horizon, features) has the numbers of the rows to come, NaN where one is not known; or several versions
    of them, (versions, horizon, features). An entry has `step`, `predicted` (the median), `low`, `high` and
    `quantiles`; of classes, `predicted` (its number) and `probabilities`.
    """
    return summary(table_paths(table, horizon, future, key=key, target=target), table.loop.tasks[target], level)


class Mixture(NamedTuple):
    """Paths of the mixture (n, horizon) in the user's units, and what their combination with other forecasts needs.

    `known` are the last targets, of all that were `seen`; None where the paths stay as they are.
    """

    paths: np.ndarray
    task: Task
    known: np.ndarray | None
    seen: int
    floor: float


def table_paths(
    table: TableLearner,
    horizon: int,
    future: np.ndarray | None = None,
    *,
    key: str | None = None,
    target: int = 0,
    rounds: int = paths.ROUNDS,
    often: bool = False,
    kept: Kept | None = None,
) -> np.ndarray:
    """Draws (paths, horizon) of the next rows of a target, in the user's units; `often`: with every row.

    With `kept` the combination goes on where it ended last time.
    """
    drawn = mixture(table, horizon, future, key=key, target=target, rounds=rounds, often=often)
    return combined([drawn], kept)[0]


def mixture(
    table: TableLearner,
    horizon: int,
    future: np.ndarray | None = None,
    *,
    key: str | None = None,
    target: int = 0,
    rounds: int = paths.ROUNDS,
    often: bool = False,
) -> Mixture:
    """Paths of the rows after the last one, of one key where there are several; not combined yet."""
    past = table.pasts[target]
    given = future is not None and bool(np.isfinite(future).any())
    check_request(horizon, past, table.options.has_memory, len(table.scaled), given)
    if table.keyed and key not in table.keys:
        raise StreamError(f"key: {key!r} was never seen" if key is not None else "key: name one of the keys")
    windows = windows_of(future, horizon, len(table.scaled), table.room)
    state = table.one(table.keys[key] if table.keyed and key is not None else None)[target]
    classes = table.known[target] if table.targets[target].classes else 0
    learner, task = table.loop.learners[target], table.loop.tasks[target]
    own = key or ""
    coming = Future.of(past, own, windows, classes)
    program = _program(learner, task, PastShape.of(past), windows.shape[1], rounds, often)
    with jax.enable_x64(True):
        drawn = np.asarray(program(state, jax.random.key(table.options.seed), coming))
    combines = past.naive and task.family.support == "real"
    known = np.array(past.known.get(own, ()), float) if combines else None
    return Mixture(drawn, task, known, past.counts.get(own, 0), float(coming.floor))


def combined(drawn: Sequence[Mixture], kept: Kept | None = None) -> list[np.ndarray]:
    """The paths of several series, each moved to the combination with other forecasts; `kept`: of one series."""
    made = [one.paths for one in drawn]
    places = [place for place, one in enumerate(drawn) if one.known is not None and len(one.known)]
    with jax.enable_x64(True):
        mine = [_in_learners_units(drawn[place].task, made[place]) for place in places]
        known = [_in_learners_units(drawn[place].task, np.asarray(drawn[place].known)) for place in places]
        moved = combined_paths(mine, known, [drawn[place].seen for place in places], kept)
        for place, own in zip(places, moved, strict=True):
            one = drawn[place]
            users = own if one.task.linear else np.asarray(one.task.from_learner(jnp.asarray(own)))
            made[place] = np.maximum(users, one.floor)
    return made


def _in_learners_units(task: Task, values: np.ndarray) -> np.ndarray:
    """`Task.to_learner` of any number of values; compiled for the next power of two."""
    if task.linear:
        return values
    room = np.ones(1 << (values.size - 1).bit_length())
    room[: values.size] = values.ravel()
    return np.asarray(task.to_learner(jnp.asarray(room)))[: values.size].reshape(values.shape)


def summary(drawn: np.ndarray, task: Task, level: float = 0.9) -> list[dict[str, Any]]:
    """What is told of each step: of numbers, median, limits and quantiles; of classes, their probabilities."""
    if task.classes:
        shares = np.stack([(drawn == number).mean(axis=0) for number in range(task.classes)], axis=1)
        return [
            {"step": step, "predicted": int(row.argmax()), "probabilities": row.tolist()}
            for step, row in enumerate(shares, 1)
        ]
    low, middle, high = np.quantile(drawn, [(1 - level) / 2, 0.5, (1 + level) / 2], axis=0)
    table = np.quantile(drawn, QUANTILES, axis=0).T
    return [
        {
            "step": step + 1,
            "predicted": float(middle[step]),
            "low": float(low[step]),
            "high": float(high[step]),
            "quantiles": dict(zip(QUANTILES, row.tolist(), strict=True)),
        }
        for step, row in enumerate(table)
    ]


def check_request(horizon: int, past: Past, has_memory: bool, features: int, given: bool) -> None:
    """Refuse a forecast that would be one number repeated: no memory, no past, and no columns to tell rows apart."""
    if horizon < 1:
        raise StreamError(f"horizon: must be at least 1 row ahead, got {horizon}")
    if not past.columns and not has_memory and not given:
        ways = "give the columns of the rows to come (--future FILE), or " if features else ""
        raise StreamError(f"forecast: this learner sees no past targets; {ways}learn with past targets (--past auto)")


def windows_of(future: np.ndarray | None, horizon: int, columns: int, room: int) -> np.ndarray:
    """The columns to come as versions (v, horizon, room): missing where not given, room for more behind."""
    if future is None:
        return np.full((1, horizon, room), np.nan)
    given = np.asarray(future, float)
    given = given[None] if given.ndim == 2 else given
    if given.ndim != 3 or given.shape[1] < horizon or given.shape[2] != columns:
        raise StreamError(
            f"future: needs {horizon} rows of {columns} numbers, one for each step ahead, got shape {given.shape[1:]}"
        )
    return np.concatenate([given[:, :horizon], np.full((len(given), horizon, room - columns), np.nan)], axis=2)


def crps(quantiles: Sequence[float] | np.ndarray, y: float) -> float:
    """The continuous ranked probability score from quantiles at `QUANTILES`: twice the mean pinball loss."""
    away = y - np.asarray(quantiles)
    return float(2 * np.mean(np.where(away >= 0, np.array(QUANTILES) * away, (np.array(QUANTILES) - 1) * away)))
