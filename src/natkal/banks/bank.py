"""Learners side by side, mixed by their running likelihood."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.banks.group import Group, families_of, joined, map_running
from natkal.banks.mixing import MARGINAL_ROWS, equal_log_weights, marginal_share, mix, regret_bound
from natkal.banks.mixture import MarginalLaw, Mixture, joined_laws, mixed_moments, with_marginal
from natkal.banks.parameters import drawn, joint_law, total_covariance
from natkal.banks.selection import Selection, best_of, decision_at, restarted, revived
from natkal.banks.size import grown, pruned
from natkal.banks.state import BankInfo, BankState, MarginalState, ReferenceState, Told, is_sound
from natkal.compiling.policy import jit_method, run_once
from natkal.engine import Learner
from natkal.engine.checks import as_precision
from natkal.engine.joint import JointLaw
from natkal.engine.protocol import Feed
from natkal.families.base import Family, as_float
from natkal.laws import Laws, Marginal, Moments
from natkal.typing import Array, Bool, Float, Params

DEAD_AFTER = 200
"""Rows in a row whose output did not depend on some array of the parameters, after which a member counts as dead."""


@dataclasses.dataclass(frozen=True, eq=False)
class Bank:
    """A learner made of learners; build it with `bank`. Members may have different models of the same observations."""

    groups: tuple[Group, ...]
    laws: Laws
    share: float
    selection: Selection | None = None
    scatter: float = 0.0
    """How far from `params` members start: times a draw of each one's prior."""
    marginal: Marginal | None = None
    """The law of the target\'s own past, which always keeps its share of the weight."""
    never_worse_than: int | None = None
    """The member that the whole is never more than ln 2 nats behind, over any stream: its place among all members."""

    @property
    def outputs(self) -> Family:
        """The law of an observation: that of the first member which names one."""
        return families_of(self.groups)[0]

    @property
    def size(self) -> int:
        """How many members."""
        return sum(group.size for group in self.groups)

    @property
    def experts(self) -> int:
        """How many laws are mixed: each member with each of its predictive laws."""
        return self.size * self.laws.count

    def __repr__(self) -> str:
        return f"Bank({self.size} members in {len(self.groups)} groups, {self.laws.count} laws each, {self.outputs})"

    def regret_bound(self, observations: int, switches: int = 0) -> float:
        """The most the bank can lose in all to its best expert, or to experts that take turns, in nats."""
        shares = 1 / np.maximum(np.arange(observations), MARGINAL_ROWS)
        beside = 0.0 if self.marginal is None else -float(np.sum(np.log1p(-shares)))
        return regret_bound(self.experts, observations, self.share, switches) + beside

    def init(self, params: Params | None = None, key: Array | None = None) -> BankState:
        """Every member at `params` (each model's own unless given), all experts at equal weight."""
        keys = jax.random.split(jax.random.key(0) if key is None else key, self.size)
        states = tuple(self._start(group, params, keys[rows]) for group, rows in self.rows())
        dtype = next(leaf.dtype for leaf in jax.tree.leaves(states) if jnp.issubdtype(leaf.dtype, jnp.floating))
        return BankState(
            members=states,
            noise=jax.tree.map(lambda leaf: jnp.repeat(leaf[None], self.size, axis=0), self.laws.start(dtype)),
            log_weights=equal_log_weights((self.size, self.laws.count), dtype),
            memory=jnp.zeros(self.size, dtype),
            prior_left=jnp.ones(self.size, dtype),
            reseeded=jnp.zeros((), jnp.int32),
            silent=jnp.full(self.size, -1, jnp.int32),
            selection=None if self.selection is None else self.selection.init(self.sizes, dtype),
            marginal=self._start_marginal(dtype),
            reference=self._start_reference(dtype),
        )

    def _start_marginal(self, dtype: Any) -> MarginalState | None:
        if self.marginal is None:
            return None
        return MarginalState(self.marginal.start(dtype), jnp.zeros((), dtype))

    def _start_reference(self, dtype: Any) -> ReferenceState | None:
        if self.never_worse_than is None:
            return None
        return ReferenceState(equal_log_weights((self.laws.count,), dtype), equal_log_weights((2,), dtype))

    def _start(self, group: Group, params: Params | None, keys: Array) -> Any:
        states = group.init(params, keys)
        if not self.scatter:
            return states

        def moved(learner: Learner, own: Any, key: Array) -> Any:
            drawn = learner.sample(own, jax.random.fold_in(key, 1))
            step = jax.tree.map(lambda at, to: at + self.scatter * (to - at), own.params, drawn)
            return own._replace(params=step)

        return group.map(moved, states, keys)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many members each group has."""
        return tuple(group.size for group in self.groups)

    @jit_method
    def predict(self, state: BankState, inputs: Any) -> Mixture:
        """The mixture's predictive law of the next y for these inputs; learns nothing."""
        asked = [self.ask(index, state, inputs) for index in range(len(self.groups))]
        return self.mixture(state, asked)

    @jit_method
    def step(self, state: BankState, inputs: Any, target: Any) -> tuple[BankState, BankInfo]:
        """Predict, observe, learn: every member takes its own step, and the weights follow the members' likelihoods."""
        target = as_precision(state.log_weights.dtype, jnp.asarray(target))
        rest = state._replace(members=())
        members, told = [], []
        for index, own in enumerate(state.members):
            own = restarted(self.revive(index, own, rest), self.lost(rest)[index], lambda i=index: self.start(i, rest))
            after, said = self.advance(index, own, rest, inputs, target)
            members.append(after)
            told.append(said)
        learned, info = self.weigh(self.after_reviving(rest), told, target)
        return self.decide(learned)._replace(members=tuple(members)), info

    def revive(self, index: int, states: Any, rest: BankState) -> Any:
        """The states of a group's members before a step: those that are dead become copies of the best."""
        rows = self.rows()[index][1]
        dead = self._dead(rest)[rows]
        return revived(states, dead, best_of(rest.log_weights[rows], self.running(rest)[rows] & ~dead))

    def lost(self, rest: BankState) -> list[Bool[Array, ""]]:
        """For each group, whether all of its members that run have stopped learning: they start from their prior."""
        # not if a row never reached all arrays: a model may have one that nothing depends on
        running, silenced = self.running(rest), self._silenced(rest) & (rest.silent > 0)
        return [jnp.any(running[rows]) & jnp.all(~running[rows] | silenced[rows]) for _, rows in self.rows()]

    def start(self, index: int, rest: BankState) -> Any:
        """New states of a group's members, with other random numbers after each start."""
        group, rows = self.rows()[index]
        keys = jax.random.split(jax.random.fold_in(jax.random.key(1), rest.reseeded), self.size)
        return self._start(group, None, keys[rows])

    def after_reviving(self, rest: BankState) -> BankState:
        """What is kept beside the members once `revive` and new starts have changed them."""
        dead = self._dead(rest)
        lost = jnp.concatenate(
            [jnp.broadcast_to(one, (size,)) for one, size in zip(self.lost(rest), self.sizes, strict=True)]
        )
        return rest._replace(
            silent=jnp.where(lost, -1, jnp.where(dead, 0, rest.silent)),
            reseeded=rest.reseeded + jnp.sum(dead | (lost & self.running(rest)), dtype=jnp.int32),
        )

    def advance(self, index: int, states: Any, rest: BankState, inputs: Any, target: Any) -> tuple[Any, Told]:
        """The members of one group that run take their steps; `rest` is the bank's state without members.

        A bad member becomes a copy of the best good one of the group; where none is good, all stay as they are.
        """

        def one(learner: Learner, kept: Any) -> tuple[Any, Told]:
            after, info = learner.step(kept, inputs, target)
            return after, Told(
                prediction=as_precision(rest.log_weights.dtype, self.laws.needed(info.prediction)),
                observed=info.observed,
                good=info.accepted & is_sound(self.outputs, info.prediction),
                keep=as_precision(rest.log_weights.dtype, getattr(info, "keep", jnp.ones_like(info.log_prob))),
                reached=jnp.asarray(getattr(info, "reached", True)) | ~info.observed,
            )

        group, rows = self.rows()[index]
        if rest.selection is None:
            after, told = group.map(one, states)
            bad = ~told.good
        else:
            running = rest.selection.running[index]
            after, told = group.map_running(one, running, states)
            bad = running.mask() & ~told.good
        return revived(after, bad & jnp.any(~bad), best_of(rest.log_weights[rows], ~bad)), told

    def ask(self, index: int, state: BankState, inputs: Any) -> Any:
        """The predictions of the members of one group that run."""

        def one(learner: Learner, kept: Any, own: Any) -> tuple[Any, Any]:
            return kept, as_precision(state.log_weights.dtype, self.laws.needed(learner.predict(own, inputs)))

        return self.asked(state, index, one)

    def asked(self, state: BankState, index: int, one: Callable[..., Any]) -> Any:
        """The second part of `one(learner, (), state)` for each member of a group that runs."""
        group, own = self.groups[index], state.members[index]
        if state.selection is None:
            return group.map(lambda learner, own: one(learner, (), own)[1], own)
        return group.map_running(one, state.selection.running[index], (), own)[1]

    def weigh(self, state: BankState, told: Sequence[Told], target: Any) -> tuple[BankState, BankInfo]:
        """The mixture of the members' predictions, and the weights after the observation; `state` without members.

        `decide` comes after it.
        """

        def judge(noise: Any, prediction: Any, observed: Array) -> tuple[Any, tuple[Any, Moments, Array]]:
            experts, moments = self._laws_of(prediction, noise)
            log_prob = jax.vmap(lambda law: self.laws.log_prob(law, target))(experts)
            after = self.laws.observe(noise, prediction, target)
            return after, (experts, moments, jnp.where(observed, log_prob, 0.0))

        parts = [
            self._each(state, index, judge, self._noise(state, index), said.prediction, said.observed)
            for index, said in enumerate(told)
        ]
        experts = joined_laws([judged[0] for _, judged in parts])
        noise, moments, log_probs = joined([(after, judged[1], judged[2]) for after, judged in parts])
        all_told = joined([said._replace(prediction=()) for said in told])
        running = self.running(state)
        observed = jnp.any(all_told.observed)
        mixture = self._mixture(state, experts, moments)
        among = None if state.selection is None else jnp.broadcast_to(self.mixed(state)[:, None], log_probs.shape)
        log_prob, log_weights = mix(state.log_weights, log_probs, self.share, among)
        log_weights = jnp.where(observed, log_weights, state.log_weights)
        longer = jnp.where(state.silent >= 0, state.silent + 1, state.silent - 1)
        silent = jnp.where(running, jnp.where(all_told.reached, 0, longer), state.silent)
        bad = running & ~all_told.good
        learned = BankState(
            members=(),
            noise=noise,
            log_weights=log_weights,
            memory=jnp.where(observed & running, all_told.keep * state.memory + 1, state.memory),
            prior_left=jnp.where(observed & running, all_told.keep * state.prior_left, state.prior_left),
            reseeded=state.reseeded + jnp.sum(bad, dtype=jnp.int32),
            silent=silent,
            selection=state.selection,
            marginal=state.marginal,
            reference=state.reference,
        )
        learned, log_prob = self._beside(learned, log_prob, target, observed)
        learned, log_prob = self._around(learned, log_prob, log_probs, observed)
        log_prob = jnp.where(observed, log_prob, 0.0)
        if self.selection is not None:
            learned = self.selection.follow(learned, state.log_weights, log_probs, log_prob, observed)
        weights = jnp.sum(mixture.weights, axis=1) / jnp.sum(mixture.weights)
        return learned, BankInfo(
            log_prob=log_prob,
            prediction=mixture,
            observed=observed,
            accepted=~jnp.any(bad),
            expert_log_prob=log_probs,
            surprise=jnp.where(observed, _surprise(mixture, value_of(self.outputs, target)), 0.0),
            memory=weights @ learned.memory,
            prior_left=weights @ learned.prior_left,
            reseeded=learned.reseeded,
        )

    def _beside(self, state: BankState, log_prob: Array, target: Array, observed: Array) -> tuple[BankState, Array]:
        """The law of the target's own past beside all members: log p of both, and what it knows then."""
        own = state.marginal
        if self.marginal is None or own is None:
            return state, log_prob
        y = value_of(self.outputs, target)
        weight = jnp.ones_like(log_prob) if y is target else target[1]
        alone = weight * self.marginal.log_prob(self.marginal.law(own.memory), y)
        share = marginal_share(own.rows)
        both = jnp.logaddexp(jnp.log1p(-share) + log_prob, jnp.log(share) + alone)
        after = MarginalState(self.marginal.observe(own.memory, y, weight), own.rows + 1)
        kept = jax.tree.map(lambda new, old: jnp.where(observed, new, old), after, own)
        return state._replace(marginal=kept), both

    def _around(self, state: BankState, log_prob: Array, each: Array, observed: Array) -> tuple[BankState, Array]:
        """Around the whole a Bayes mixture of two, without share: the bank, and the member it is never worse than."""
        own = state.reference
        if self.never_worse_than is None or own is None:
            return state, log_prob
        alone, laws = mix(own.laws, each[self.never_worse_than], 0.0)
        both, log_weights = mix(own.log_weights, jnp.stack([log_prob, alone]), 0.0)
        after = ReferenceState(laws, log_weights)
        kept = jax.tree.map(lambda new, old: jnp.where(observed, new, old), after, own)
        return state._replace(reference=kept), both

    def decide(self, state: BankState) -> BankState:
        """After a step: which members go on, where the number of steps asks for a decision; `state` without members."""
        return state if self.selection is None else self.selection.decide(state, self.sizes)

    def mixture(self, state: BankState, predictions: Sequence[Any]) -> Mixture:
        """The mixture of the predictions of each group's members, as `ask` gives them."""

        def judge(kept: Any, prediction: Any, noise: Any) -> tuple[Any, tuple[Any, Moments]]:
            return kept, self._laws_of(prediction, noise)

        parts = [
            self._each(state, index, judge, (), prediction, self._noise(state, index))[1]
            for index, prediction in enumerate(predictions)
        ]
        return self._mixture(state, joined_laws([experts for experts, _ in parts]), joined([m for _, m in parts]))

    def restart(self, state: BankState) -> BankState:
        """Every member at the start of a new sequence; all that was learned stays."""
        members = tuple(
            group.map(lambda learner, own: learner.restart(own), own)
            for group, own in zip(self.groups, state.members, strict=True)
        )
        return state._replace(members=members)

    def forecast(self, state: BankState, inputs: Any, horizon: int, feed: Feed | None = None) -> Mixture:
        """The mixture of the members' own forecasts, with today's weights, as one stacked prediction."""

        def ahead(learner: Learner, own: Any, noise: Any) -> tuple[Any, Moments]:
            predictions = learner.forecast(own, inputs, horizon, feed)
            return jax.vmap(lambda one, ahead: self._laws_of(self.laws.needed(one), noise, ahead))(
                predictions, jnp.arange(horizon)
            )

        parts = [
            group.map(ahead, own, jax.tree.map(lambda leaf, rows=rows: leaf[rows], state.noise))
            for (group, rows), own in zip(self.rows(), state.members, strict=True)
        ]
        experts, moments = zip(*parts, strict=True)
        by_step = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), (joined_laws(experts), joined(moments)))
        return jax.vmap(lambda experts, moments: self._mixture(state, experts, moments))(*by_step)

    def sample(self, state: BankState, key: Array) -> Params:
        """A member by its weight, then a draw of its parameters; for members of one model."""
        return drawn(self, state, key)

    def covariance(self, state: BankState) -> Float[Array, "p p"]:
        """The mean of the members' covariances plus the covariance of their parameters; for members of one model."""
        return total_covariance(self, state)

    @property
    def joint_sizes(self) -> tuple[int, ...]:
        """One law for each member."""
        own: list[Any] = [group.first for group in self.groups for _ in range(group.size)]
        return tuple(learner.joint_sizes[0] for learner in own)

    def joint(self, state: BankState, inputs: Any) -> JointLaw:
        """The joint law of the outputs of several arms: those of the members, by their weights."""
        return joint_law(self, state, inputs)

    def noise_units(self, noise: Any) -> Float[Array, "m v"]:
        """The unit that each member's parameters deviate in under each law; 1 where no noise is learned."""
        dtype = next((leaf.dtype for leaf in jax.tree.leaves(noise)), jnp.zeros(()).dtype)
        members = jnp.arange(self.size)  # laws without a memory have no axis of members
        return jax.vmap(lambda _, own: self.laws.units(own, dtype))(members, noise)

    def inflate(self, state: BankState, factor: Array) -> BankState:
        """The state with every member's covariance times `factor`."""
        members = tuple(
            group.map(lambda learner, own: learner.inflate(own, factor), own)
            for group, own in zip(self.groups, state.members, strict=True)
        )
        return state._replace(members=members)

    def best(self, state: BankState) -> tuple[Learner, Any]:
        """The member with the largest weight, as a learner of its own, and its state."""
        index = int(np.argmax(np.logaddexp.reduce(np.asarray(state.log_weights), axis=1)))
        for (group, rows), states in zip(self.rows(), state.members, strict=True):
            if index < rows.stop:
                own = index - rows.start
                one = run_once(lambda of, own=own: jax.tree.map(lambda leaf: leaf[own], of), states, name=("one", own))
                return group.learner(own), one
        raise AssertionError("an index within the bank")

    def prune(self, state: BankState, keep: int) -> tuple["Bank", BankState]:
        """The `keep` members of largest weight and their states; a smaller bank, quicker by as much."""
        return pruned(self, state, keep)

    def grow(self, state: BankState, learners: Sequence[Learner]) -> tuple["Bank", BankState]:
        """More members, which start from the best one's parameters with their own prior; they share its weight."""
        return grown(self, state, learners)

    def rows(self) -> list[tuple[Group, slice]]:
        """Every group with the rows of its members in what is stacked over all of them."""
        ends = np.cumsum(self.sizes).tolist()
        return [(group, slice(end - group.size, end)) for group, end in zip(self.groups, ends, strict=True)]

    def _noise(self, state: BankState, index: int) -> Any:
        """What the predictive laws have learned beside the members of one group."""
        rows = self.rows()[index][1]
        return jax.tree.map(lambda leaf: leaf[rows], state.noise)

    def _each(self, state: BankState, index: int, function: Callable[..., Any], kept: Any, *stacked: Any) -> Any:
        """`function(kept, *parts) -> (kept, told)` of each member of a group that runs."""
        if state.selection is not None:
            return map_running(function, state.selection.running[index], kept, *stacked)
        return jax.vmap(function)(kept, *stacked)

    def running(self, state: BankState) -> Bool[Array, " m"]:
        """Which members run."""
        if state.selection is None:
            return jnp.ones(self.size, bool)
        return jnp.concatenate([running.mask() for running in state.selection.running])

    def mixed(self, state: BankState) -> Bool[Array, " m"]:
        """Which members have weight: those that run and are not on trial."""
        running = self.running(state)
        return running if state.selection is None else running & ~state.selection.trial

    def _laws_of(self, prediction: Any, noise: Any, ahead: Any = 0) -> tuple[Any, Moments]:
        experts = self.laws.laws(noise, prediction, ahead)
        return experts, jax.vmap(self.laws.moments)(experts)

    def _mixture(self, state: BankState, experts: Any, moments: Moments) -> Mixture:
        # a member that is not finite does not count until it is reseeded
        usable = self.mixed(state) & jnp.all(jnp.isfinite(moments.mean), axis=(1, 2))
        marginal, members = None, 1.0
        if self.marginal is None or state.marginal is None:
            usable = jnp.where(jnp.any(usable), usable, self.mixed(state))
        else:  # where no member is usable it is all there is
            own = jnp.where(jnp.any(usable), marginal_share(state.marginal.rows), 1.0)
            marginal, members = MarginalLaw(self.marginal.law(state.marginal.memory), own), 1 - own
        weights = jnp.where(usable[:, None], jnp.exp(state.log_weights), 0.0)
        total = jnp.sum(weights)
        weights = members * weights / jnp.where(total > 0, total, 1.0)
        if self.never_worse_than is not None and state.reference is not None:
            share = jnp.where(usable[self.never_worse_than], jnp.exp(state.reference.log_weights[1]), 0.0)
            weights = (1 - share) * weights
            weights = weights.at[self.never_worse_than].add(share * jnp.exp(state.reference.laws))
            marginal = None if marginal is None else marginal._replace(weight=(1 - share) * marginal.weight)
        together = mixed_moments(*with_marginal(weights, moments, self.marginal, marginal))
        return Mixture(
            mean=together.mean,
            spread=together.cov,
            weights=weights,
            experts=experts,
            laws=self.laws.unweighted,
            family=self.outputs.unweighted,
            marginal=marginal,
            marginals=self.marginal,
        )

    def _dead(self, state: BankState) -> Bool[Array, " m"]:
        """Members that have stopped learning while another one of their group, whose copy they become, still learns."""
        running, silenced = self.running(state), self._silenced(state)
        alive = [jnp.any(running[rows] & ~silenced[rows]) for _, rows in self.rows()]
        alike = [jnp.broadcast_to(one, (size,)) for one, size in zip(alive, self.sizes, strict=True)]
        return running & silenced & jnp.concatenate(alike)

    def _silenced(self, state: BankState) -> Bool[Array, " m"]:
        """Members that have stopped learning; where members are selected, asked only after a decision."""
        silenced = jnp.maximum(state.silent, -1 - state.silent) >= DEAD_AFTER
        return silenced if state.selection is None else silenced & decision_at(state.selection.seen)


def value_of(family: Family, target: Array) -> Array:
    """The observation itself, without its weight where it has one."""
    return target if family.unweighted is family else target[0]


def _surprise(mixture: Mixture, target: Array) -> Float[Array, ""]:
    """Mean over entries of (T - mean)^2 / variance."""
    statistic = as_float(mixture.family.sufficient_statistic(target), mixture.mean.dtype)
    variance = mixture.mean * (1 - mixture.mean) if mixture.spread is None else jnp.diagonal(mixture.spread)
    square = jnp.square(statistic - mixture.mean) / jnp.where(variance > 0, variance, 1.0)
    return jnp.nanmean(jnp.where(variance > 0, square, jnp.nan))
