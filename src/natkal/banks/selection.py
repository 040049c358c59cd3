"""Which members of a bank run: many at first, then only those that matter, and all again after a drift.

Every decision is a function of the number of steps and of what they told, so a stream cut into blocks anywhere makes
the same decisions. They fall on steps FIRST, 2 FIRST, 4 FIRST, ... and on every multiple of REVIEW (`next_decision`):
members may take all steps up to there before anything is decided.

- Within a group (one architecture, several priors and fadings) the members of largest weight stay: half of them after
  FIRST rows, a quarter after 4 FIRST, one or two after 16 FIRST.
- A whole group stops after PATIENCE rows if its best member has lost more than a margin per row to the best member of
  all, on average over the recent rows and over the last few hundred of them: one that learns slowly and has caught up
  goes on. The margin shrinks as rows come; `patience` multiplies it for a group that is known to learn slowly. Up to
  LATE rows a group also goes on while its loss against the best shrinks: below CATCHING_UP of the average lately.
- Groups come cheapest first. After LATE rows a group goes on only if it gains more than the least margin over every
  group of a lower tier (by their order unless `tiers` says which are as cheap as each other).
- With a `budget`, the running members of largest weight go on whose `costs` add up to no more. The best one of the
  first group, the cheapest, is among them as long as it has not lost: only beside it can another show what it gains.
- A drift is a loss that has risen: the mean over about 50 rows is above the mean over about 1,000 by five standard
  errors. Then every member runs again. Those of a group with a running member start as copies of its best one, the
  others where they stopped, and all share a tenth of the weight.

A member that does not run has weight 0. So the bank's loss is within ln(1/w) of every member that was stopped at
weight w, up to the moment it was stopped, and within the bound of `mixing.regret_bound` of those that run.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from natkal.banks.group import RunningMembers, entry
from natkal.typing import Array, Bool, Float, Int

FIRST = 256
PATIENCE = 2048
REVIEW = 1024
LATE = 8192
FAST, SLOW = 1 / 50, 1 / 1000
RECENT, LATELY = 1 / 4000, 1 / 500
MARGIN = 80.0
"""Nats per row times rows: a group that lost more than MARGIN / rows per row, and at least MARGIN_LEAST, stops."""
MARGIN_LEAST = 2e-3
CATCHING_UP = 0.75
REVIVED_SHARE = 0.1
SETTLED = 128 * REVIEW
"""From so many steps on it pays to compile the mixing anew for the few members that are left."""
FEW = 2


def next_decision(taken: int) -> int:
    """The step of the next decision after so many steps."""
    if taken >= REVIEW:
        return (taken // REVIEW + 1) * REVIEW
    return max(FIRST, 1 << taken.bit_length())


def decision_at(seen: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether a decision falls on this step."""
    return (seen >= FIRST) & ((seen & (seen - 1) == 0) | (seen % REVIEW == 0))


def room_for(running: Sequence[int], sizes: Sequence[int], seen: int) -> tuple[int, ...]:
    """How many members of each group the mixing has room for (bank_running.py); a function of the state alone."""
    if seen < SETTLED:
        return tuple(sizes)
    return tuple(
        size if count > FEW else min(FEW, size) * (count > 0) for count, size in zip(running, sizes, strict=True)
    )


class SelectionState(NamedTuple):
    """Which members of each group run, and the running losses the decisions are made from."""

    running: tuple[RunningMembers, ...]
    seen: Int[Array, ""]
    recent: Float[Array, " m"]
    lately: Float[Array, " m"]
    fast: Float[Array, ""]
    slow: Float[Array, ""]
    square: Float[Array, ""]
    calm: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class Selection:
    """Rules for stopping and starting members; `least` of each group run as long as the group does.

    `costs` has the cost of one member of each group, in the units of `budget`; `patience` a factor for each group.
    """

    least: int = 1
    budget: float | None = None
    costs: tuple[float, ...] = ()
    patience: tuple[float, ...] = ()
    tiers: tuple[int, ...] = ()

    def init(self, sizes: tuple[int, ...], dtype: Any) -> SelectionState:
        """Every member runs."""
        running = tuple(
            RunningMembers(
                order=jnp.arange(size, dtype=jnp.int32),
                running=jnp.full((), size, jnp.int32),
                started=jnp.zeros(size, bool),
                source=jnp.zeros((), jnp.int32),
            )
            for size in sizes
        )
        zero = jnp.zeros((), dtype)
        none = jnp.zeros((), jnp.int32)
        nothing = jnp.zeros(sum(sizes), dtype)
        return SelectionState(running, none, nothing, nothing, zero, zero, zero, none)

    def follow(self, state: Any, weights: Array, told: Array, log_prob: Array, observed: Array) -> Any:
        """The bank's state with the losses of a step that each member and the mixture gave these log probabilities.

        `weights` are the log weights before the step: with those after it, each member would choose its law in
        hindsight. A step that observed nothing counts, and tells nothing. The members' own states stay (see `revived`).
        """
        before: SelectionState = state.selection
        runs = jnp.concatenate([running.mask() for running in before.running])
        top = jnp.max(weights, axis=1, keepdims=True)
        within = jnp.exp(weights - jnp.where(jnp.isfinite(top), top, 0.0))
        within = within / jnp.maximum(jnp.sum(within, axis=1, keepdims=True), jnp.finfo(within.dtype).tiny)
        highest = jnp.max(told, axis=1, keepdims=True)
        highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
        own = -jnp.log(jnp.sum(within * jnp.exp(told - highest), axis=1)) - highest[:, 0]
        own = jnp.where(runs, own, 0.0)
        own = jnp.where(jnp.isfinite(own), own, 50.0)
        loss = jnp.where(jnp.isfinite(log_prob), -log_prob, 50.0)
        seen = before.seen + 1
        count = seen.astype(loss.dtype)

        def follow(mean: Array, value: Array, rate: float) -> Array:
            return mean + jnp.where(observed, jnp.maximum(rate, 1 / count), 0.0) * (value - mean)

        now = SelectionState(
            running=tuple(own._replace(started=jnp.zeros_like(own.started)) for own in before.running),
            seen=seen,
            recent=jnp.where(runs, follow(before.recent, own, RECENT), before.recent),
            lately=jnp.where(runs, follow(before.lately, own, LATELY), before.lately),
            fast=follow(before.fast, loss, FAST),
            slow=follow(before.slow, loss, SLOW),
            square=follow(before.square, jnp.square(loss - before.slow), SLOW),
            calm=before.calm + 1,
        )
        return state._replace(selection=now)

    def decide(self, state: Any, sizes: tuple[int, ...]) -> Any:
        """The bank's weights and selection once the losses of a step are in: changed at the steps of a decision."""
        now: SelectionState = state.selection

        def decided() -> tuple[Array, SelectionState]:
            runs = jnp.concatenate([running.mask() for running in now.running])
            error = jnp.sqrt(jnp.maximum(now.square, 1e-12) * FAST / 2)
            drift = (now.fast > now.slow + 5 * error) & (now.calm >= 1000) & ~jnp.all(runs)
            chosen = jnp.where(drift, True, self._chosen(state.log_weights, now, runs, sizes))
            return self._apply(state.log_weights, now, runs, chosen, drift, sizes)

        log_weights, selection = jax.lax.cond(decision_at(now.seen), decided, lambda: (state.log_weights, now))
        return state._replace(log_weights=log_weights, selection=selection)

    def _chosen(
        self, log_weights: Array, now: SelectionState, runs: Bool[Array, " m"], sizes: tuple[int, ...]
    ) -> Bool[Array, " m"]:
        """The members that go on running."""
        weight = jnp.where(runs, logsumexp(log_weights, axis=1), -jnp.inf)
        recent, lately = (jnp.where(runs, losses, jnp.inf) for losses in (now.recent, now.lately))
        by_recent, by_lately = recent - jnp.min(recent), lately - jnp.min(lately)
        behind = jnp.minimum(by_recent, by_lately)
        catching_up = (by_lately < CATCHING_UP * by_recent) & (now.seen < LATE)
        margin = MARGIN / now.seen.astype(recent.dtype)
        ends = np.cumsum(sizes).tolist()
        groups = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        lowest = [jnp.stack([jnp.min(recent[rows]), jnp.min(lately[rows])]) for rows in groups]
        tiers, parts = self.tiers or tuple(range(len(sizes))), []
        for place, (rows, size) in enumerate(zip(groups, sizes, strict=True)):
            patience = self.patience[place] if self.patience else 1.0
            own = weight[rows]
            cheaper = [lowest[other] for other, tier in enumerate(tiers) if tier < tiers[place]]
            gains = [lowest[place] < other - MARGIN_LEAST for other in cheaper]
            worth = (jnp.any(jnp.all(jnp.stack(gains), axis=0)) if gains else True) | (now.seen < LATE)
            rank = jnp.sum(own[None, :] > own[:, None], axis=1)
            halvings = jnp.maximum(jnp.log2(now.seen / FIRST), 0.0)
            wanted = jnp.maximum(jnp.ceil(size * 0.5 ** (1 + halvings / 2)), self.least)
            near = own > jnp.max(own) - jnp.log(20.0)
            near_best = jnp.min(behind[rows]) <= jnp.maximum(patience * margin, MARGIN_LEAST)
            alive = ((near_best | jnp.any(catching_up[rows])) & worth) | (now.seen < PATIENCE)
            parts.append(runs[rows] & ((rank < wanted) | (near & (rank < 2 * wanted))) & alive)
        kept = jnp.concatenate(parts)
        kept = jnp.where(jnp.any(kept), kept, runs)
        if self.budget is None:
            return kept
        costs = jnp.asarray(np.repeat(self.costs, sizes), recent.dtype)
        cheap = kept & (jnp.arange(len(kept)) < sizes[0])
        cheapest = cheap & (weight == jnp.max(jnp.where(cheap, weight, -jnp.inf)))
        ahead = kept[None, :] & ((weight[None, :] >= weight[:, None]) | cheapest[None, :])
        spent = jnp.sum(jnp.where(ahead, costs[None, :], 0.0), axis=1)
        return kept & ((spent <= self.budget) | (weight == jnp.max(weight)) | cheapest)

    def _apply(
        self,
        before: Array,
        now: SelectionState,
        runs: Bool[Array, " m"],
        chosen: Bool[Array, " m"],
        drift: Array,
        sizes: tuple[int, ...],
    ) -> tuple[Array, SelectionState]:
        """Move the weights of those that stop to those that run, and give a share to those that start again."""
        log_weights = jnp.where(chosen[:, None], before, -jnp.inf)
        started = chosen & ~runs
        share = REVIVED_SHARE / jnp.maximum(jnp.sum(started), 1) / before.shape[1]
        total = logsumexp(jnp.where((chosen & runs)[:, None], before, -jnp.inf))
        left = jnp.where(jnp.any(started), jnp.log1p(-REVIVED_SHARE), 0.0)
        log_weights = jnp.where(started[:, None], jnp.log(share), log_weights - total + left)
        running, first = [], 0
        for own, size in zip(now.running, sizes, strict=True):
            rows = slice(first, first + size)
            first += size
            copied = started[rows] & jnp.any(runs[rows])
            running.append(_ordered(chosen[rows], own, copied, best_of(before[rows], runs[rows])))
        return log_weights, now._replace(running=tuple(running), calm=jnp.where(drift, 0, now.calm))


def _ordered(chosen: Bool[Array, " m"], before: RunningMembers, started: Array, source: Array) -> RunningMembers:
    """The chosen members first, in their own order."""
    position = jnp.where(chosen, jnp.cumsum(chosen) - 1, jnp.sum(chosen) + jnp.cumsum(~chosen) - 1)
    members = jnp.arange(len(chosen), dtype=jnp.int32)
    order = jnp.sum(jnp.where(position[None] == members[:, None], members[None], 0), axis=1, dtype=before.order.dtype)
    return RunningMembers(order, jnp.sum(chosen, dtype=jnp.int32), started, source)


def best_of(log_weights: Array, among: Bool[Array, " m"]) -> Int[Array, ""]:
    """The member of largest weight among these."""
    return jnp.argmax(jnp.where(among, logsumexp(log_weights, axis=1), -jnp.inf)).astype(jnp.int32)


def revived(states: Any, started: Bool[Array, " m"], source: Int[Array, ""]) -> Any:
    """A copy of the member `source` in the place of each that starts again, its own random key kept.

    A loop that hardly ever runs: where nothing starts it leaves the states in place, while a `cond` would copy them.
    """

    def copy(carried: tuple[Any, Bool[Array, " m"]]) -> tuple[Any, Bool[Array, " m"]]:
        states, started = carried

        def one(leaf: Array) -> Array:
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                return leaf
            where = started.reshape(started.shape + (1,) * (leaf.ndim - 1))
            return jnp.where(where, entry(leaf, source)[None], leaf)

        return jax.tree.map(one, states), jnp.zeros_like(started)

    return jax.lax.while_loop(lambda carried: jnp.any(carried[1]), copy, (states, started))[0]


def restarted(states: Any, lost: Bool[Array, ""], start: Callable[[], Any]) -> Any:
    """The states that `start` makes in the place of these if they are lost; a loop for the same reason as above."""

    def again(carried: tuple[Any, Bool[Array, ""]]) -> tuple[Any, Bool[Array, ""]]:
        new = jax.tree.map(lambda leaf, old: leaf.astype(old.dtype), start(), carried[0])
        return new, jnp.zeros_like(carried[1])

    return jax.lax.while_loop(lambda carried: carried[1], again, (states, lost))[0]
