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

from natkal.compiling import QUICK
from natkal.learners import paths
from natkal.learners.scaled import Scaled
from natkal.tabular.architectures import Inputs
from natkal.tabular.errors import StreamError
from natkal.tabular.past import INDICATORS, MEAN_RATE, SEASONAL_LAGS, Past
from natkal.tabular.tasks import Task
from natkal.typing import Array, Float

QUANTILES = tuple(round(0.05 * step, 2) for step in range(1, 20))
"""Probabilities of the quantiles of a forecast: 5, 10, .. 95 percent."""
SHORTEST_HISTORY = 16


class Means(NamedTuple):
    """`SeasonalMeans` inside a program: sums and weights have room for more places than the period has."""

    sums: Any
    weights: Any
    count: Any
    before: Any

    def next(self, season: Array) -> Array:
        """The mean at the place of the next value."""
        place = self.count % jnp.maximum(season, 1)
        return jnp.where((season > 0) & (self.weights[place] > 0), self.sums[place] / self.weights[place], jnp.nan)

    def after(self, season: Array, value: Array) -> "Means":
        """One more value."""
        place = self.count % jnp.maximum(season, 1)
        return Means(
            sums=self.sums.at[place].set((1 - MEAN_RATE) * self.sums[place] + value),
            weights=self.weights.at[place].set((1 - MEAN_RATE) * self.weights[place] + 1),
            count=self.count + 1,
            before=self.next(season),
        )

    @classmethod
    def of(cls, past: Past, key: str, length: int) -> "Means":
        """Those of a key."""
        found = past.means.get(key)
        sums, weights = np.zeros(length), np.zeros(length)
        if found is None:
            return cls(sums, weights, np.int32(0), np.float64(np.nan))
        sums[: len(found.sums)], weights[: len(found.sums)] = found.sums, found.weights
        return cls(sums, weights, np.int32(found.count % len(found.sums)), np.float64(found.before))


class Future(NamedTuple):
    """What a path starts from: the last known targets (NaN in front), their period, the columns to come, the classes.

    `known` is how many classes are known; 0 for numbers. `floor` is 0 for a series that was never negative, and paths
    stay above it; minus infinity for others.
    """

    history: Any
    season: Any
    means: "Means"
    windows: Any
    known: Any
    floor: Any


@dataclasses.dataclass(frozen=True)
class PastShape:
    """Which earlier targets are inputs: as `Past` has them."""

    classes: int
    lags: tuple[int, ...]
    seasonal: bool
    columns: int

    @classmethod
    def of(cls, past: Past) -> "PastShape":
        """That of a past."""
        return cls(past.classes, tuple(past.lags), past.named is None, past.columns)

    def inputs(self, values: Float[Array, " w"], end: Array, season: Array, means: Means) -> Float[Array, " columns"]:
        """`Past.inputs` inside a program: the last known value lies before `end`, NaN where there is none."""
        if not self.columns:
            return jnp.zeros(0, values.dtype)

        def lagged(lag: Any) -> Array:
            return jnp.where(lag > 0, values[jnp.maximum(end - lag, 0)], jnp.nan)

        if self.classes > 2:
            width = min(self.classes, INDICATORS)
            return jnp.concatenate([(lagged(lag) == jnp.arange(width)).astype(values.dtype) for lag in self.lags[:2]])
        found = [lagged(lag) for lag in self.lags]
        if self.seasonal:
            found += [lagged(jnp.where(season > 0, season + step, 0)) for step in range(SEASONAL_LAGS)]
            found += [] if self.classes else [means.next(season), means.before]
        row = jnp.stack(found)
        return jnp.nan_to_num(2.0 * row - 1.0) if self.classes == 2 else row


@functools.lru_cache(maxsize=32)
def _program(
    learner: Scaled, task: Task, past: PastShape, horizon: int, rounds: int, often: bool
) -> Callable[..., Array]:
    """(state, key, future) -> paths (n, horizon) in the user's units; compiled once for each horizon.

    A program that is not run often is compiled in a hurry, which takes a third of the time.
    """

    def draw(state: Any, key: Array, future: Future) -> Array:
        length = len(future.history)
        dtype = future.history.dtype

        def start(key: Array) -> Any:
            version = jax.random.randint(key, (), 0, len(future.windows))
            return jnp.concatenate([future.history, jnp.zeros(horizon, dtype)]), future.means, version

        def at(memory: Any, step: Array) -> Inputs:
            values, means, version = memory
            before = past.inputs(values, length + step, future.season, means)
            return Inputs(jnp.concatenate([before, future.windows[version, step]]), future.known)

        def users(y: Array) -> Array:
            return jnp.maximum(task.from_learner(y).astype(dtype), future.floor)

        def after(memory: Any, step: Array, y: Array) -> Any:
            values, means, version = memory
            return values.at[length + step].set(users(y)), means.after(future.season, users(y)), version

        return users(learner.paths(state, key, paths.Inputs(start, at, after), horizon, rounds))

    return jax.jit(draw, compiler_options=None if often else QUICK)


def draw_paths(
    learner: Scaled, state: Any, task: Task, past: Past, key: str, windows: np.ndarray, known: int, seed: int,
    rounds: int = paths.ROUNDS, often: bool = False,
) -> np.ndarray:  # fmt: skip
    """Paths (n, horizon) of the rows after the last one of this key; `windows` (versions, horizon, columns)."""
    shape = PastShape.of(past)
    needed = max([SHORTEST_HISTORY, *past.lags, past.season + SEASONAL_LAGS - 1])
    length = 1 << (needed - 1).bit_length()
    values = np.array(past.known.get(key, ()), float)
    floor = 0.0 if len(values) and values.min() >= 0 else -np.inf
    history = np.concatenate([np.full(max(length - len(values), 0), np.nan), values[-length:]])
    means = Means.of(past, key, length)
    future = Future(
        history, np.int32(past.season), means, np.asarray(windows, float), np.int32(known), np.float64(floor)
    )
    program = _program(learner, task, shape, windows.shape[1], rounds, often)
    with jax.enable_x64(True):
        return np.asarray(program(state, jax.random.key(seed), future))


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
