"""A bandit on rows of numbers with its state: what the doors that decide share."""

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from natkal.compiling import compile_loop
from natkal.drivers.storage import array_template, restored, state_arrays
from natkal.learners.bandit import Bandit
from natkal.tabular.bandit_options import BanditOptions, check_bandit_options, make_bandit
from natkal.tabular.errors import StreamError
from natkal.tabular.resize import resized

MAX_HELD_DECISIONS = 1_000_000
"""Decisions whose rewards may still come; the oldest are forgotten beyond."""
SMALLEST_BLOCK, LARGEST_BLOCK = 1, 1024
"""Rows of one compiled call: padded to a power of 4 between these."""


class Told(NamedTuple):
    """Decisions for some contexts: arms by number, their probabilities, and the expected reward of every arm."""

    arms: np.ndarray
    probabilities: np.ndarray
    exact: np.ndarray
    expected: np.ndarray


class Valued(NamedTuple):
    """Logged decisions as the bandit sees them: its probability of the logged arm, the model's reward of that arm, and
    the mean of the model's rewards over the bandit's own choice.
    """

    chosen: np.ndarray
    expected: np.ndarray
    expected_of_policy: np.ndarray


class BanditLearner:
    """A bandit on rows of numbers, with its state, the names of its arms and the decisions that wait for a reward.

    Contexts are rows (n, columns) with NaN where a number is missing; `scaled` says which are plain numbers to be
    standardised. Columns and arms can be added; what was learned stays.
    """

    def __init__(self, options: BanditOptions, scaled: Sequence[bool], arms: Sequence[str]):
        check_bandit_options(options)
        self.options = options
        self.scaled = list(scaled)
        self.fan_in = max(len(self.scaled), 1)
        self.room = len(self.scaled)
        self.arms = list(dict.fromkeys(map(str, arms)))
        self.arm_room = max(len(self.arms), 2)
        self.held: OrderedDict[str, tuple[np.ndarray, int]] = OrderedDict()
        self.decided = 0
        self.rewarded = 0
        self._build()
        with jax.enable_x64(True):
            self.state: Any = jax.jit(self.bandit.init)()

    def _build(self) -> None:
        scaled = (*self.scaled, *[True] * (self.room - len(self.scaled)))
        self.bandit = make_bandit(self.options, scaled, self.fan_in, self.arm_room)

    # -- decisions and rewards ---------------------------------------------------------------------------------------

    def decide(self, contexts: np.ndarray, available: np.ndarray | None = None) -> Told:
        """One decision for each context, all from the present state; `available` (n, arms) leaves arms out."""
        count, parts = len(contexts), []
        free = np.zeros((count, self.arm_room), bool)
        free[:, : len(self.arms)] = True if available is None else available
        if not free.any(axis=1).all():
            raise StreamError("arms: there is none to choose from")
        numbers = self.with_room(contexts)
        for first in range(0, count, LARGEST_BLOCK):
            block = slice(first, min(first + LARGEST_BLOCK, count))
            size = _padded(block.stop - first)
            rows = _filled_up(numbers[block], size), _filled_up(free[block], size, True)
            with jax.enable_x64(True):
                at = np.arange(self.decided + first, self.decided + first + size)
                told = _programs(self.bandit).decide(self.state, *rows, np.int64(self.options.seed), at)
            parts.append(Told(*(np.asarray(part)[: block.stop - first] for part in told)))
        self.decided += count
        return Told(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def learn(self, contexts: np.ndarray, arms: np.ndarray, rewards: np.ndarray) -> None:
        """Learn from rewards in their order; NaN is missing and says nothing."""
        for rows, count in self._logged(contexts, arms, rewards):
            with jax.enable_x64(True):
                self.state = _programs(self.bandit).learn(self.state, *rows, np.int32(count))

    def _logged(
        self, contexts: np.ndarray, arms: np.ndarray, rewards: np.ndarray
    ) -> Iterator[tuple[tuple[np.ndarray, ...], int]]:
        """Blocks of logged decisions, padded, and how many of each count; the rewards that came are counted."""
        numbers, count = self.with_room(contexts), len(contexts)
        for first in range(0, count, LARGEST_BLOCK):
            last = min(first + LARGEST_BLOCK, count)
            size = _padded(last - first)
            rows = (
                _filled_up(numbers[first:last], size),
                _filled_up(np.asarray(arms[first:last], np.int32), size),
                _filled_up(np.asarray(rewards[first:last], float), size),
            )
            yield rows, last - first
        self.rewarded += int(np.sum(~np.isnan(np.asarray(rewards, float))))

    def expected(self, contexts: np.ndarray) -> np.ndarray:
        """The expected reward of every arm, (n, arms)."""
        with jax.enable_x64(True):
            found = _programs(self.bandit).expected(self.state, self.with_room(contexts))
        return np.asarray(found)[:, : len(self.arms)]

    def replay(self, contexts: np.ndarray, arms: np.ndarray, rewards: np.ndarray) -> Valued:
        """Learn from logged decisions in their order; each is valued with what was known before it."""
        parts = []
        free = np.arange(self.arm_room) < len(self.arms)
        for rows, count in self._logged(contexts, arms, rewards):
            with jax.enable_x64(True):
                self.state, told = _programs(self.bandit).replay(self.state, *rows, free, np.int32(count))
            parts.append([np.asarray(part)[:count] for part in told])
        return Valued(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    # -- decisions that wait for a reward ------------------------------------------------------------------------------

    def hold(self, name: str, context: np.ndarray, arm: int) -> None:
        """Keep a decision until its reward comes."""
        self.held[name] = (np.array(context, float), int(arm))
        if len(self.held) > MAX_HELD_DECISIONS:
            self.held.popitem(last=False)

    def take(self, name: str) -> tuple[np.ndarray, int]:
        """The decision with this name, which waits no longer."""
        found = self.held.pop(name, None)
        if found is None:
            raise StreamError(f"id {name!r}: no decision with this id waits for a reward")
        return found

    # -- growth ------------------------------------------------------------------------------------------------------

    def add_features(self, scaled: Sequence[bool]) -> None:
        """More numbers in a context, behind those there are."""
        self.scaled += list(scaled)
        if len(self.scaled) > self.room or not all(scaled):
            self.room = max(len(self.scaled), self.room if len(self.scaled) <= self.room else 2 * self.room)
            self._grow()

    def add_arms(self, names: Sequence[str]) -> None:
        """More arms; nothing is known of them yet."""
        self.arms += [name for name in dict.fromkeys(map(str, names)) if name not in self.arms]
        if len(self.arms) > self.arm_room:
            self.arm_room = max(len(self.arms), 2 * self.arm_room)
            self._grow()

    def _grow(self) -> None:
        old = self.bandit
        self._build()
        with jax.enable_x64(True):
            move = jax.jit(lambda state: resized(old.learner, state, self.bandit.learner))
            self.state = self.state._replace(learner=move(self.state.learner))

    def with_room(self, contexts: np.ndarray) -> np.ndarray:
        """Contexts with the columns there is room for; those that they lack are missing."""
        numbers = np.asarray(contexts, float)
        missing = np.full((len(numbers), self.room - numbers.shape[1]), np.nan)
        return np.concatenate([numbers, missing], axis=1) if missing.size else numbers

    # -- on disk -----------------------------------------------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        """All that is not numbers."""
        return {
            "options": dataclasses.asdict(self.options),
            "scaled": [bool(flag) for flag in self.scaled],
            "fan_in": self.fan_in,
            "room": self.room,
            "arms": self.arms,
            "arm_room": self.arm_room,
            "decided": self.decided,
            "rewarded": self.rewarded,
            "held": list(self.held),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Every number of the state and of the decisions held, by name."""
        contexts = [self.with_room(context[None])[0] for context, _ in self.held.values()]
        return {
            **{f"state{name}": array for name, array in state_arrays(self.state).items()},
            "held.contexts": np.stack(contexts) if contexts else np.zeros((0, self.room)),
            "held.arms": np.array([arm for _, arm in self.held.values()], np.int32),
        }

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> Self:
        """A bandit like the one that wrote the header, at its start; `restore` brings its numbers back."""
        made = cls.__new__(cls)
        made.options = BanditOptions(**header["options"])
        check_bandit_options(made.options)
        made.scaled = [bool(flag) for flag in header["scaled"]]
        made.fan_in, made.room = int(header["fan_in"]), int(header["room"])
        made.arms, made.arm_room = [str(name) for name in header["arms"]], int(header["arm_room"])
        made.decided, made.rewarded = int(header["decided"]), int(header["rewarded"])
        made.held = OrderedDict((str(name), (np.zeros(0), 0)) for name in header["held"])
        if not (0 <= len(made.scaled) <= made.room and made.fan_in >= 1 and 2 <= made.arm_room >= len(made.arms)):
            raise StreamError("checkpoint: its sizes do not fit together")
        made._build()
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as plain dictionaries and NumPy arrays."""
        return _rebuilt, (self.header(), self.arrays())

    def template(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Name, shape and dtype of each array of a checkpoint with this header; nothing is allocated."""
        with jax.enable_x64(True):
            state = array_template(jax.eval_shape(self.bandit.init))
        return {
            **{f"state{name}": kind for name, kind in state.items()},
            "held.contexts": ((len(self.held), self.room), np.dtype("<f8")),
            "held.arms": ((len(self.held),), np.dtype("<i4")),
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The state from a checkpoint's arrays, which match `template`."""
        state = {name.removeprefix("state"): array for name, array in arrays.items() if name.startswith("state")}
        with jax.enable_x64(True):
            self.state = restored(jax.eval_shape(self.bandit.init), state)
        for place, name in enumerate(self.held):
            self.held[name] = (np.array(arrays["held.contexts"][place]), int(arrays["held.arms"][place]))


def _rebuilt(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> BanditLearner:
    made = BanditLearner.from_header(header)
    made.restore(arrays)
    return made


class Programs(NamedTuple):
    """The compiled functions of one bandit."""

    decide: Any
    learn: Any
    expected: Any
    replay: Any


@lru_cache(maxsize=64)
def _programs(bandit: Bandit) -> Programs:
    def decide(state: Any, contexts: Any, free: Any, seed: Any, numbers: Any) -> Any:
        def one(context: Any, own: Any, number: Any) -> Any:
            return bandit.act(state, context, jax.random.fold_in(jax.random.key(seed), number), own)

        return tuple(jax.vmap(one)(contexts, free, numbers))

    def learn(state: Any, contexts: Any, arms: Any, rewards: Any, count: Any) -> Any:
        def row(turn: Any, state: Any) -> Any:
            return bandit.learn(state, contexts[turn], arms[turn], rewards[turn])

        return jax.lax.fori_loop(0, count, row, state)

    def replay(state: Any, contexts: Any, arms: Any, rewards: Any, free: Any, count: Any) -> Any:
        def row(turn: Any, carried: Any) -> Any:
            state, told = carried
            context, arm = contexts[turn], arms[turn]
            chances = bandit.probabilities(state, context, jax.random.fold_in(jax.random.key(1), turn), free)
            expected = bandit.expected(state, context)
            now = chances[arm], expected[arm], chances @ expected
            told = tuple(part.at[turn].set(value) for part, value in zip(told, now, strict=True))
            return bandit.learn(state, context, arm, rewards[turn]), told

        return jax.lax.fori_loop(0, count, row, (state, (jnp.zeros(len(arms)),) * 3))

    expected = jax.vmap(bandit.expected, in_axes=(None, 0))
    return Programs(compile_loop(decide), compile_loop(learn), jax.jit(expected), compile_loop(replay))


def _padded(count: int) -> int:
    size = SMALLEST_BLOCK
    while size < count:
        size *= 4
    return min(size, LARGEST_BLOCK)


def _filled_up(rows: np.ndarray, size: int, value: Any = 0) -> Any:
    """The rows with as many more behind them as `size` asks for."""
    more = np.full((size - len(rows), *rows.shape[1:]), value, rows.dtype)
    return np.concatenate([rows, more]) if len(more) else rows
