"""Which members of a bank run: many at first, then the few that matter, and one more on trial.

Decisions are reviews: after FIRST rows, 2 FIRST, 4 FIRST, and after every multiple of REVIEW (`next_decision`); members
may take all steps up to there before anything is decided. So a stream cut into blocks anywhere makes the same ones.

- At a review the members of lowest loss over the last REVIEW rows or so stay: half of all after FIRST rows, a quarter
  after 4 FIRST, .. and KEPT in the end. Up to GROUPS_STAY rows the best of each group stays too.
- From REVIEW rows on one member that does not run is on *trial*: it runs with weight 0 up to the next review. It joins
  if a Bayes mixture of two, {bank, member}, with a fixed share of TRIAL_SHARE has come to prefer the member, with the
  weight that this mixture gives it. Otherwise it stops, and the one that has been away longest follows.
- A drift is a loss that has risen: the mean over about 50 rows is above the mean over about 1,000 by five standard
  errors. Then all members that do not run are on trial at once.
- With a `budget` no more run than those of lowest loss whose `costs` fit into it, and none is tried that does not fit.

So no member is away for more than REVIEW rows times the number of members, and one that would be better over so many
rows comes back; it costs one member a row. A member that does not run has weight 0.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid
from jax.scipy.special import logsumexp

from natkal.banks.group import RunningMembers, entry
from natkal.typing import Array, Bool, Float, Int

FIRST, REVIEW = 256, 1024
KEPT = 3
GROUPS_STAY = 8 * REVIEW
TRIAL_SHARE = 1 / 1024
FAST, SLOW = 1 / 50, 1 / 1000
NOT_FINITE = 50.0
"""What a row counts for that a member gives no probability, in nats."""
SETTLED = 128 * REVIEW
"""From so many steps on it pays to compile the mixing anew for the few members that are left."""
FEW = 2


def next_decision(taken: int) -> int:
    """The step of the next review after so many steps."""
    if taken >= REVIEW:
        return (taken // REVIEW + 1) * REVIEW
    return max(FIRST, 1 << taken.bit_length())


def decision_at(seen: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether a review falls on this step."""
    return (seen >= FIRST) & ((seen & (seen - 1) == 0) | (seen % REVIEW == 0))


def room_for(running: Sequence[int], sizes: Sequence[int], seen: int) -> tuple[int, ...]:
    """How many members of each group the mixing has room for (`running.py`); a function of the state alone."""
    if seen < SETTLED:
        return tuple(sizes)
    return tuple(size if count > FEW else min(FEW, size) for count, size in zip(running, sizes, strict=True))


class SelectionState(NamedTuple):
    """Which members of each group run, and what reviews decide from.

    `loss` is each member's own over about the last REVIEW rows it ran. `trial`: it runs with weight 0; `odds` are the
    log odds of it against the bank. `away` is the step at which it stopped.
    """

    running: tuple[RunningMembers, ...]
    seen: Int[Array, ""]
    loss: Float[Array, " m"]
    trial: Bool[Array, " m"]
    odds: Float[Array, " m"]
    away: Int[Array, " m"]
    fast: Float[Array, ""]
    slow: Float[Array, ""]
    square: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class Selection:
    """The rule; `costs` has the cost of one member of each group, in the units of `budget`."""

    budget: float | None = None
    costs: tuple[float, ...] = ()

    def init(self, sizes: tuple[int, ...], dtype: Any) -> SelectionState:
        """Every member runs."""
        running = tuple(
            RunningMembers(order=jnp.arange(size, dtype=jnp.int32), running=jnp.full((), size, jnp.int32))
            for size in sizes
        )
        zero, members = jnp.zeros((), dtype), sum(sizes)
        nothing, none = jnp.zeros(members, dtype), jnp.zeros(members, jnp.int32)
        seen = jnp.zeros((), jnp.int32)
        return SelectionState(running, seen, nothing, none > 0, nothing, none, zero, zero, zero)

    def follow(self, state: Any, weights: Array, told: Array, log_prob: Array, observed: Array) -> Any:
        """The bank's state with the losses of a step that each member and the mixture gave these log probabilities.

        `weights` are the log weights before the step: with those after it, each member would choose its law in
        hindsight. A member on trial has the laws in the proportions of the mixture. A step that observed nothing
        counts, and tells nothing.
        """
        before: SelectionState = state.selection
        runs = jnp.concatenate([running.mask() for running in before.running])
        joint = jnp.where(before.trial[:, None], _by_law(weights), weights)
        top = jnp.max(joint, axis=1, keepdims=True)
        within = jnp.exp(joint - jnp.where(jnp.isfinite(top), top, 0.0))
        within = within / jnp.maximum(jnp.sum(within, axis=1, keepdims=True), jnp.finfo(within.dtype).tiny)
        highest = jnp.max(told, axis=1, keepdims=True)
        highest = jnp.where(jnp.isfinite(highest), highest, 0.0)
        own = -jnp.log(jnp.sum(within * jnp.exp(told - highest), axis=1)) - highest[:, 0]
        own = jnp.where(runs & jnp.isfinite(own), own, jnp.where(runs, NOT_FINITE, 0.0))
        loss = jnp.where(jnp.isfinite(log_prob), -log_prob, NOT_FINITE)
        seen = before.seen + 1

        def follow(mean: Array, value: Array, rate: float, count: Any = seen) -> Array:
            least = jnp.maximum(rate, 1 / jnp.asarray(count, loss.dtype))
            return mean + jnp.where(observed, least, 0.0) * (value - mean)

        tried = before.seen % REVIEW + 1  # rows of the trial: its loss is that of these alone
        gain = loss - own
        sure = jax.nn.sigmoid(before.odds + gain)
        shared = (1 - TRIAL_SHARE) * sure + TRIAL_SHARE / 2
        odds = jnp.log(shared) - jnp.log1p(-shared)
        now = before._replace(
            seen=seen,
            loss=jnp.where(
                runs, follow(before.loss, own, 1 / REVIEW, jnp.where(before.trial, tried, seen)), before.loss
            ),
            odds=jnp.where(before.trial & observed, odds, before.odds),
            fast=follow(before.fast, loss, FAST),
            slow=follow(before.slow, loss, SLOW),
            square=follow(before.square, jnp.square(loss - before.slow), SLOW),
        )
        return state._replace(selection=now)

    def decide(self, state: Any, sizes: tuple[int, ...]) -> Any:
        """The bank's weights and selection once the losses of a step are in: changed at reviews."""
        now: SelectionState = state.selection
        before = state.log_weights
        log_weights, selection = jax.lax.cond(
            decision_at(now.seen), lambda: self.review(before, now, sizes), lambda: (before, now)
        )
        return state._replace(log_weights=log_weights, selection=selection)

    def review(self, before: Array, now: SelectionState, sizes: tuple[int, ...]) -> tuple[Array, SelectionState]:
        """The weights and which members run after a review."""
        runs = jnp.concatenate([running.mask() for running in now.running])
        joins = now.trial & (now.odds > 0)
        # the Bayes mixture of the bank and of those that join, each by its odds against the bank
        bank = log_sigmoid(-logsumexp(jnp.where(joins, now.odds, -jnp.inf)))
        weights = jnp.where(joins[:, None], _by_law(before)[None] + now.odds[:, None], before) + bank
        there = (runs & ~now.trial) | joins
        costs = jnp.asarray(np.repeat(self.costs or (0.0,) * len(sizes), sizes), before.dtype)
        budget = jnp.inf if self.budget is None else self.budget
        kept = self._kept(now, there, costs, budget, sizes)
        weights = jnp.where(kept[:, None], weights, -jnp.inf)
        away = jnp.where(runs, now.seen, now.away)
        error = jnp.sqrt(jnp.maximum(now.square, 1e-12) * FAST / 2)
        drift = (now.fast > now.slow + 5 * error) & ~jnp.all(runs)
        could = ~kept & (costs + jnp.sum(jnp.where(kept, costs, 0.0)) <= budget) & (now.seen >= REVIEW)
        longest = jnp.where(could, away, jnp.iinfo(away.dtype).max)
        longest = could & (longest == jnp.min(longest))
        best = jnp.argmin(jnp.where(longest, now.loss, jnp.inf))
        trial = could & (drift | (longest & (jnp.arange(len(could)) == best)))
        after = now._replace(
            running=_ordered(kept | trial, now.running),
            trial=trial,
            odds=jnp.zeros_like(now.odds),
            away=away,
        )
        return weights - logsumexp(weights), after

    def _kept(
        self, now: SelectionState, there: Bool[Array, " m"], costs: Array, budget: Any, sizes: tuple[int, ...]
    ) -> Bool[Array, " m"]:
        """The members that go on with weight: those of lowest loss within the budget, at first one of each group."""
        loss = jnp.where(there, jnp.where(jnp.isnan(now.loss), NOT_FINITE, now.loss), jnp.inf)
        place = jnp.arange(len(loss))
        ahead = (loss[None, :] < loss[:, None]) | ((loss[None, :] == loss[:, None]) & (place[None, :] < place[:, None]))
        rank = jnp.sum(ahead & there[None, :], axis=1)
        halvings = jnp.maximum(jnp.log2(now.seen / FIRST), 0.0)
        wanted = jnp.maximum(jnp.ceil(len(loss) * 0.5 ** (1 + halvings / 2)), KEPT)
        of_group, first = [], 0
        for size in sizes:
            rows = slice(first, first + size)
            first += size
            of_group.append(jnp.arange(size) == jnp.argmin(loss[rows]))
        stays = jnp.concatenate(of_group) & (now.seen < GROUPS_STAY)
        chosen = there & ((rank < wanted) | stays)
        spent = costs + jnp.sum(jnp.where(ahead & chosen[None, :], costs[None, :], 0.0), axis=1)
        return chosen & ((spent <= budget) | (rank == 0))


def _by_law(log_weights: Array) -> Float[Array, " v"]:
    """The log weight of each law, over all members."""
    return logsumexp(log_weights, axis=0) - logsumexp(log_weights)


def _ordered(chosen: Bool[Array, " m"], before: Sequence[RunningMembers]) -> tuple[RunningMembers, ...]:
    """The chosen members of each group first, in their own order."""
    groups, first = [], 0
    for old in before:
        size = len(old.order)
        own = chosen[first : first + size]
        first += size
        position = jnp.where(own, jnp.cumsum(own) - 1, jnp.sum(own) + jnp.cumsum(~own) - 1)
        members = jnp.arange(size, dtype=jnp.int32)
        order = jnp.sum(jnp.where(position[None] == members[:, None], members[None], 0), axis=1, dtype=old.order.dtype)
        groups.append(RunningMembers(order, jnp.sum(own, dtype=jnp.int32)))
    return tuple(groups)


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
