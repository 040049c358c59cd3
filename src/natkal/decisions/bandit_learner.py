"""A bandit on rows of numbers with its state: what the doors that decide share."""

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from natkal.banks.resize import resize
from natkal.compiling.float64 import float64
from natkal.compiling.policy import compile_loop, run_together
from natkal.decisions import Bandit
from natkal.decisions.bandit_options import BanditOptions, check_bandit_options, make_bandit
from natkal.errors import StreamError
from natkal.storage.states import array_template, restored, state_arrays

MAX_HELD_DECISIONS = 1_000_000
"""Decisions whose rewards may still come; the oldest are forgotten beyond."""
LARGEST_BLOCK, BLOCK_NUMBERS = 1024, 1 << 16
"""Rows of one compiled call, and how many numbers they may have: wide rows come in shorter blocks. A bandit has one
block length, so every row goes through the same machine code, whatever came with it, and little is compiled."""


LANES = 16
"""Decisions that are computed side by side; they do not depend on each other, and share what an operation costs."""
ONE_FUNCTION_BYTES = 1 << 17
"""State up to which learning is compiled as one machine function: a network's takes minutes to compile like that."""


class Told(NamedTuple):
    """Decisions for some contexts: arms by number, their probabilities, and the expected reward of every arm."""

    arms: np.ndarray
    probabilities: np.ndarray
    exact: np.ndarray
    expected: np.ndarray


class Held(NamedTuple):
    """A decision that waits for its reward: the context, the arm by number, and the probability of the choice."""

    context: np.ndarray
    arm: int
    probability: float


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

    @float64
    def __init__(self, options: BanditOptions, scaled: Sequence[bool], arms: Sequence[str]):
        check_bandit_options(options)
        self.options = options
        self.scaled = list(scaled)
        self.fan_in = max(len(self.scaled), 1)
        self.room = len(self.scaled)
        self.arms = list(dict.fromkeys(map(str, arms)))
        self.arm_room = max(len(self.arms), 2)
        self.held: OrderedDict[str, Held] = OrderedDict()
        self.decided = 0
        self.rewarded = 0
        self._build()
        self.state: Any = jax.jit(self.bandit.init)()

    def _build(self) -> None:
        scaled = (*self.scaled, *[True] * (self.room - len(self.scaled)))
        self.bandit = make_bandit(self.options, scaled, self.fan_in, self.arm_room)

    # -- decisions and rewards ---------------------------------------------------------------------------------------

    @float64
    def decide(self, contexts: np.ndarray, available: np.ndarray | None = None) -> Told:
        """One decision for each context, all from the present state; `available` (n, arms) leaves arms out."""
        free = np.zeros((len(contexts), self.arm_room), bool)
        free[:, : len(self.arms)] = True if available is None else available
        if not free.any(axis=1).all():
            raise StreamError("arms: there is none to choose from")
        # a decision's lane is that of its number: what it rounds to does not depend on those that came with it
        before = self.decided % LANES
        numbers = self.decided - before + np.arange(before + len(contexts))
        ahead = [np.pad(part, ((before, 0), (0, 0))) for part in (self.with_room(contexts), free)]
        parts = []
        for rows, count in self._blocks(*ahead, numbers):
            turns = np.int32(-(-count // LANES))
            told = _programs(self.bandit).decide(self.state, *rows, np.int64(self.options.seed), turns)
            parts.append([np.asarray(part).reshape(-1, *part.shape[2:])[:count] for part in told])
        self.decided += len(contexts)
        return Told(*(np.concatenate(part)[before:] for part in zip(*parts, strict=True)))

    @float64
    def learn(self, contexts: np.ndarray, arms: np.ndarray, rewards: np.ndarray) -> None:
        """Learn from rewards in their order; NaN is missing and says nothing."""
        for rows, count in self._blocks(self.with_room(contexts), np.asarray(arms, np.int32), rewards):
            self.state = _programs(self.bandit).learn(self.state, *rows, np.int32(count))
        self.rewarded += int(np.sum(~np.isnan(rewards)))

    @float64
    def expected(self, contexts: np.ndarray) -> np.ndarray:
        """The expected reward of every arm, (n, arms)."""
        parts = []
        for rows, count in self._blocks(self.with_room(contexts)):
            found = _programs(self.bandit).expected(self.state, *rows, np.int32(count))
            parts.append(np.asarray(found)[:count, : len(self.arms)])
        return np.concatenate(parts)

    @float64
    def replay(self, contexts: np.ndarray, arms: np.ndarray, rewards: np.ndarray) -> Valued:
        """Learn from logged decisions in their order; each is valued with what was known before it."""
        parts = []
        free = np.arange(self.arm_room) < len(self.arms)
        numbers = self.rewarded + np.cumsum(~np.isnan(rewards))
        for rows, count in self._blocks(self.with_room(contexts), np.asarray(arms, np.int32), rewards, numbers):
            self.state, told = _programs(self.bandit).replay(self.state, *rows, free, np.int32(count))
            parts.append([np.asarray(part)[:count] for part in told])
        self.rewarded += int(np.sum(~np.isnan(rewards)))
        return Valued(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def warm_up(self) -> None:
        """Compile what decisions and rewards need, at once; changes nothing."""
        rows = np.zeros((1, self.room))
        state, decided = self.state, self.decided
        run_together([lambda: self.decide(rows), lambda: self.learn(rows, np.zeros(1, np.int32), np.full(1, np.nan))])
        self.state, self.decided = state, decided

    def _blocks(self, *columns: np.ndarray) -> Iterator[tuple[tuple[np.ndarray, ...], int]]:
        """Arrays of n rows in blocks of one length, filled up with zeros, and how many rows of each block count."""
        most = LARGEST_BLOCK
        while most > LANES and most * self.room > BLOCK_NUMBERS:
            most //= 2
        for first in range(0, len(columns[0]), most):
            parts = [column[first : first + most] for column in columns]
            count = len(parts[0])
            yield tuple(np.pad(part, [(0, most - count), *[(0, 0)] * (part.ndim - 1)]) for part in parts), count

    # -- decisions that wait for a reward ------------------------------------------------------------------------------

    def hold(self, name: str, context: np.ndarray, arm: int, probability: float) -> None:
        """Keep a decision until its reward comes; an earlier one of the same name is forgotten."""
        self.held.pop(name, None)
        self.held[name] = Held(np.array(context, float), int(arm), float(probability))
        if len(self.held) > MAX_HELD_DECISIONS:
            self.held.popitem(last=False)

    def take(self, name: str) -> Held:
        """The decision with this name, which waits no longer."""
        found = self.held.pop(name, None)
        if found is None:
            raise StreamError(f"id {name!r}: no decision with this id waits for a reward")
        return found

    # -- what it is made of --------------------------------------------------------------------------------------------

    @property
    def parameters(self) -> int:
        """Numbers that one member of each architecture learns."""
        return sum(group.first.size for group in self.bandit.learner.bank.groups)

    def weights(self) -> dict[str, float]:
        """The weight of each member in a decision, by name."""
        bank = self.bandit.learner.bank
        names = [name for group in bank.groups for name in group.names]
        by_law = np.asarray(self.state.learner.bank.log_weights)
        by_error = np.asarray(self.state.members.log_weights)
        weights = np.exp(by_error if self.bandit.weighs_by_error else np.logaddexp.reduce(by_law, axis=1))
        return dict(zip(names, (weights / weights.sum()).tolist(), strict=True))

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

    @float64
    def _grow(self) -> None:
        old = self.bandit
        self._build()
        move = jax.jit(lambda state: resize(old.learner, self.bandit.learner, state))
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
        held = list(self.held.values())
        contexts = [self.with_room(one.context[None])[0] for one in held]
        return {
            **{f"state{name}": array for name, array in state_arrays(self.state).items()},
            "held.contexts": np.stack(contexts) if contexts else np.zeros((0, self.room)),
            "held.arms": np.array([one.arm for one in held], np.int32),
            "held.probabilities": np.array([one.probability for one in held], float),
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
        made.held = OrderedDict((str(name), Held(np.zeros(0), 0, 1.0)) for name in header["held"])
        if not (0 <= len(made.scaled) <= made.room and made.fan_in >= 1 and 2 <= made.arm_room >= len(made.arms)):
            raise StreamError("checkpoint: its sizes do not fit together")
        made._build()
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled as plain dictionaries and NumPy arrays."""
        return _rebuilt, (self.header(), self.arrays())

    @float64
    def template(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Name, shape and dtype of each array of a checkpoint with this header; nothing is allocated."""
        state = array_template(jax.eval_shape(self.bandit.init))
        return {
            **{f"state{name}": kind for name, kind in state.items()},
            "held.contexts": ((len(self.held), self.room), np.dtype("<f8")),
            "held.arms": ((len(self.held),), np.dtype("<i4")),
            "held.probabilities": ((len(self.held),), np.dtype("<f8")),
        }

    @float64
    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The state from a checkpoint's arrays, which match `template`."""
        state = {name.removeprefix("state"): array for name, array in arrays.items() if name.startswith("state")}
        self.state = restored(jax.eval_shape(self.bandit.init), state)
        for place, name in enumerate(self.held):
            self.held[name] = Held(
                np.array(arrays["held.contexts"][place]),
                int(arrays["held.arms"][place]),
                float(arrays["held.probabilities"][place]),
            )


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
    """Loops over the first `count` rows of a block: a row's result does not depend on the others."""

    def each(count: Any, rows: Any, work: Any) -> Any:
        first = jax.tree.map(lambda leaf: leaf[0], rows)
        length = len(jax.tree.leaves(rows)[0])
        shapes = jax.eval_shape(work, *first)
        empty = jax.tree.map(lambda leaf: jnp.zeros((length, *leaf.shape), leaf.dtype), shapes)

        def turn(at: Any, done: Any) -> Any:
            now = work(*jax.tree.map(lambda leaf: leaf[at], rows))
            return jax.tree.map(lambda all_of_them, value: all_of_them.at[at].set(value), done, now)

        return jax.lax.fori_loop(0, count, turn, empty)

    def decide(state: Any, contexts: Any, free: Any, numbers: Any, seed: Any, turns: Any) -> Any:
        def one(context: Any, own: Any, number: Any) -> Any:
            key = jax.random.fold_in(jax.random.key(seed), number)
            return tuple(bandit.act(state, context, key, own))

        rows = jax.tree.map(lambda leaf: leaf.reshape(-1, LANES, *leaf.shape[1:]), (contexts, free, numbers))
        return each(turns, rows, jax.vmap(one))

    def learn(state: Any, contexts: Any, arms: Any, rewards: Any, count: Any) -> Any:
        def row(at: Any, state: Any) -> Any:
            return bandit.learn(state, contexts[at], arms[at], rewards[at])

        return jax.lax.fori_loop(0, count, row, state)

    def replay(state: Any, contexts: Any, arms: Any, rewards: Any, numbers: Any, free: Any, count: Any) -> Any:
        def row(at: Any, carried: Any) -> Any:
            state, told = carried
            context, arm = contexts[at], arms[at]
            chances = bandit.probabilities(state, context, jax.random.fold_in(jax.random.key(1), numbers[at]), free)
            expected = bandit.expected(state, context)
            now = chances[arm], expected[arm], chances @ expected
            told = tuple(part.at[at].set(value) for part, value in zip(told, now, strict=True))
            return bandit.learn(state, context, arm, rewards[at]), told

        return jax.lax.fori_loop(0, count, row, (state, (jnp.zeros(len(arms)),) * 3))

    def expected(state: Any, contexts: Any, count: Any) -> Any:
        return each(count, (contexts,), lambda context: bandit.expected(state, context))

    loops = (compile_loop(loop, largest=ONE_FUNCTION_BYTES) for loop in (learn, expected, replay))
    return Programs(jax.jit(decide), *loops)
