"""Learners side by side, mixed by their running likelihood."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from natkal.engine import Learner, LearnerState, Prediction
from natkal.engine.checks import check_observation, check_params, explain_shapes, in_precision_of
from natkal.families.base import as_float
from natkal.families.counts import NegativeBinomial, Poisson
from natkal.learners.members import Group, Stepped, from_grid, from_learners
from natkal.learners.mixing import equal_log_weights, mix, regret_bound
from natkal.learners.mixture import Mixture, distribution, mixed_moments, quantile, summarised
from natkal.learners.predictive import Moments, Voices
from natkal.models import Model
from natkal.typing import Array, Bool, Float, Int, Params


class BankState(NamedTuple):
    """All members' states, group by group with a leading axis, and what is known of the members.

    `log_weights` has a row for each member and a column for each of its voices. `memory` is the effective number of
    observations each member remembers, `prior_left` the share of its prior that is not forgotten, `reseeded` how often
    a member went bad and started again.
    """

    members: tuple[LearnerState, ...]
    voices: Any
    log_weights: Float[Array, "m v"]
    memory: Float[Array, " m"]
    prior_left: Float[Array, " m"]
    reseeded: Int[Array, ""]

    @property
    def params(self) -> Params:
        """The parameters of the member with the largest weight."""
        return _pick([group.params for group in self.members], _best(self.log_weights))

    @property
    def carry(self) -> Any:
        """The memory of that member's model."""
        return _pick([group.carry for group in self.members], _best(self.log_weights))


class BankInfo(NamedTuple):
    """What one observation told a bank.

    `log_prob` is that of y under the mixture before learning; `expert_log_prob` that under each member and voice.
    `surprise` is the squared normalised innovation, about 1 on average where the law is right. `memory` and
    `prior_left` are the weighted means over the members. `accepted`: every member could take its step.
    """

    log_prob: Float[Array, ""]
    prediction: Mixture
    observed: Bool[Array, ""]
    accepted: Bool[Array, ""]
    expert_log_prob: Float[Array, "m v"]
    surprise: Float[Array, ""]
    memory: Float[Array, ""]
    prior_left: Float[Array, ""]
    reseeded: Int[Array, ""]


@dataclasses.dataclass(frozen=True, eq=False)
class Bank:
    """Pure functions `init`, `predict` and `step` on a `BankState`; build it with `bank`."""

    groups: tuple[Group, ...]
    voices: Voices | None
    share: float

    @functools.cached_property
    def model(self) -> Model:
        """The model all members share."""
        return self.groups[0].learner(0).model

    @property
    def size(self) -> int:
        """How many members."""
        return sum(group.size for group in self.groups)

    @property
    def experts(self) -> int:
        """How many laws are mixed: each member in each of its voices."""
        return self.size * (1 if self.voices is None else self.voices.count)

    def regret_bound(self, observations: int, switches: int = 0) -> float:
        """The most the bank can lose in all to its best expert, or to experts that take turns, in nats."""
        return regret_bound(self.experts, observations, self.share, switches)

    def init(self, params: Params, key: Array | None = None) -> BankState:
        """Every member at `params`, all experts at equal weight."""
        check_params(self.model, params)
        keys = jax.random.split(jax.random.key(0) if key is None else key, self.size)
        states, first = [], 0
        for group in self.groups:
            states.append(group.init(params, keys[first : first + group.size]))
            first += group.size
        dtype = jax.tree.leaves(states[0].params)[0].dtype
        voices = 1 if self.voices is None else self.voices.count
        memory = () if self.voices is None else _repeat(self.voices.start(dtype), self.size)
        return BankState(
            members=tuple(states),
            voices=memory,
            log_weights=equal_log_weights((self.size, voices), dtype),
            memory=jnp.zeros(self.size, dtype),
            prior_left=jnp.ones(self.size, dtype),
            reseeded=jnp.zeros((), jnp.int32),
        )

    def predict(self, state: BankState, inputs: Any) -> Mixture:
        """What the mixture expects of the next y for these inputs; learns nothing."""
        check_observation(self.model, inputs)
        with explain_shapes(self.model, state.params, state.carry, inputs):
            return self._predict(state, inputs)

    def step(self, state: BankState, inputs: Any, target: Any) -> tuple[BankState, BankInfo]:
        """Predict, observe, learn: every member takes its own step, and the weights follow what each had said."""
        check_observation(self.model, inputs, target)
        with explain_shapes(self.model, state.params, state.carry, inputs):
            return self._step(state, inputs, target)

    def prepare(self, state: BankState, inputs: Any) -> BankState:
        """The state as it is: nothing in it depends on the shape of `inputs`."""
        return state

    def restart(self, state: BankState) -> BankState:
        """Every member at the start of a new sequence; all that was learned stays."""
        members = tuple(group.restart(own) for group, own in zip(self.groups, state.members, strict=True))
        return state._replace(members=members)

    @functools.cached_property
    def _predict(self):
        return jax.jit(self.predict_unchecked)

    @functools.cached_property
    def _step(self):
        return jax.jit(self.step_unchecked)

    def predict_unchecked(self, state: BankState, inputs: Any) -> Mixture:
        """`predict` on values already checked, for use inside other transformations."""
        parts = [group.predict(own, inputs) for group, own in zip(self.groups, state.members, strict=True)]
        return self._mixture(state, _join(parts))

    def step_unchecked(self, state: BankState, inputs: Any, target: Any) -> tuple[BankState, BankInfo]:
        """`step` on values already checked, for use inside other transformations."""
        inputs, target = in_precision_of(state.params, (inputs, jnp.asarray(target)))
        stepped = [group.step(own, inputs, target) for group, own in zip(self.groups, state.members, strict=True)]
        infos, keep = _join([part.infos for part in stepped]), _join([part.keep for part in stepped])
        mixture = self._mixture(state, infos.prediction)
        observed = infos.observed[0]
        if self.voices is None:
            log_probs, memory = infos.log_prob[:, None], state.voices
        else:
            voices = self.voices
            said = jax.vmap(jax.vmap(lambda law: voices.log_prob(law, target)))(mixture.laws)
            log_probs = jnp.where(observed, said, 0.0)
            memory = jax.vmap(lambda own, seen: voices.listen(own, seen, target))(state.voices, infos.prediction)
        log_prob, log_weights = mix(state.log_weights, log_probs, self.share)
        log_weights = jnp.where(observed, log_weights, state.log_weights)
        bad = ~infos.accepted | ~jnp.all(jnp.isfinite(infos.prediction.mean), axis=1)
        learned = BankState(
            members=self._reseeded(stepped, log_weights, bad),
            voices=memory,
            log_weights=log_weights,
            memory=jnp.where(observed, keep * state.memory + 1, state.memory),
            prior_left=jnp.where(observed, keep * state.prior_left, state.prior_left),
            reseeded=state.reseeded + jnp.sum(bad, dtype=jnp.int32),
        )
        weights = jnp.sum(mixture.weights, axis=1)
        return learned, BankInfo(
            log_prob=log_prob,
            prediction=mixture,
            observed=observed,
            accepted=~jnp.any(bad),
            expert_log_prob=log_probs,
            surprise=jnp.where(observed, _surprise(self.model, mixture, target), 0.0),
            memory=weights @ learned.memory,
            prior_left=weights @ learned.prior_left,
            reseeded=learned.reseeded,
        )

    def cdf(self, prediction: Mixture, y: Any) -> Array:
        """P(Y <= y), entry by entry; stacked predictions of `run` take one y each."""
        return _over_rows(self, prediction, lambda one, value: distribution(self._spoken, one, value), y)

    def quantile(self, prediction: Mixture, probability: float) -> Array:
        """The y below which lies this probability; stacked predictions of `run` give one each."""
        whole = isinstance(self.model.outputs, Poisson | NegativeBinomial)

        def find(one: Mixture, probability: Array) -> Array:
            return quantile(self._spoken, summarised(self._spoken, one), probability, whole)

        return _over_rows(self, prediction, find, probability)

    def interval(self, prediction: Mixture, level: float = 0.9) -> tuple[Array, Array]:
        """The central interval that should hold y with probability `level`."""
        if not 0 < level < 1:
            raise ValueError(f"level: must lie strictly between 0 and 1, got {level}")
        return self.quantile(prediction, (1 - level) / 2), self.quantile(prediction, (1 + level) / 2)

    def best(self, state: BankState) -> tuple[Learner, LearnerState]:
        """The member with the largest weight, as a learner of its own."""
        index = int(_best(state.log_weights))
        for group, states in zip(self.groups, state.members, strict=True):
            if index < group.size:
                return group.learner(index), jax.tree.map(lambda leaf, at=index: leaf[at], states)
            index -= group.size
        raise AssertionError("an index within the bank")

    def prune(self, state: BankState, keep: int) -> tuple["Bank", BankState]:
        """The `keep` members of largest weight and their states; a smaller bank, quicker by as much."""
        if not 1 <= keep <= self.size:
            raise ValueError(f"keep: must lie in 1..{self.size}, got {keep}")
        chosen = np.sort(np.argsort(-np.asarray(logsumexp(state.log_weights, axis=1)))[:keep])
        groups, members, first = [], [], 0
        for group, states in zip(self.groups, state.members, strict=True):
            own = [int(index - first) for index in chosen if first <= index < first + group.size]
            first += group.size
            if own:
                groups.append(group.take(own))
                members.append(jax.tree.map(lambda leaf, own=own: leaf[np.asarray(own)], states))
        weights = state.log_weights[chosen]
        return dataclasses.replace(self, groups=tuple(groups)), state._replace(
            members=tuple(members),
            voices=jax.tree.map(lambda leaf: leaf[chosen], state.voices),
            log_weights=weights - logsumexp(weights),
            memory=state.memory[chosen],
            prior_left=state.prior_left[chosen],
        )

    def grow(self, state: BankState, learners: Sequence[Learner]) -> tuple["Bank", BankState]:
        """More members, which start from the best one's parameters with their own prior; they share its weight."""
        added = from_learners(learners)
        if added[0].learner(0).model is not self.model:
            raise ValueError("learners: all members of a bank share one model")
        count = sum(group.size for group in added)
        best, params = _best(state.log_weights), state.params
        members = tuple(group.init(params, jax.random.split(jax.random.key(self.size), group.size)) for group in added)
        # the best member's own weight is split evenly between itself and the newcomers, voice by voice
        split = state.log_weights[best] - jnp.log(count + 1.0).astype(state.log_weights.dtype)
        log_weights = state.log_weights.at[best].set(split)
        dtype = log_weights.dtype
        grown = state._replace(
            members=state.members + members,
            voices=jax.tree.map(
                lambda leaf: jnp.concatenate([leaf, jnp.repeat(leaf[best][None], count, axis=0)]), state.voices
            ),
            log_weights=jnp.concatenate([log_weights, jnp.repeat(split[None], count, axis=0)]),
            memory=jnp.concatenate([state.memory, jnp.zeros(count, dtype)]),
            prior_left=jnp.concatenate([state.prior_left, jnp.ones(count, dtype)]),
        )
        return dataclasses.replace(self, groups=self.groups + added), grown

    @property
    def _spoken(self) -> Voices:
        if self.voices is None:
            raise ValueError("voices: this bank mixes its members' own laws, which have no quantiles; use nk.auto")
        return self.voices

    def _mixture(self, state: BankState, predictions: Prediction) -> Mixture:
        weights = jnp.exp(state.log_weights)
        if self.voices is None:
            covs = predictions.total_cov
            if covs is None:
                covs = jax.vmap(self.model.outputs.cov)(predictions.natural)
            laws, moments = (), Moments(mean=predictions.mean[:, None], cov=covs[:, None])
        else:
            laws = jax.vmap(self.voices.speak)(state.voices, predictions)
            moments = jax.vmap(jax.vmap(self.voices.moments))(laws)
        together = mixed_moments(weights, moments)
        shape = self.model.outputs.event_shape
        return Mixture(
            mean=together.mean,
            total_cov=together.cov,
            weights=weights,
            laws=laws,
            location=jnp.zeros(shape, weights.dtype),
            scale=jnp.ones(shape, weights.dtype),
        )

    def _reseeded(
        self, stepped: Sequence[Stepped], log_weights: Float[Array, "m v"], bad: Bool[Array, " m"]
    ) -> tuple[LearnerState, ...]:
        """Bad members become copies of the best good one of their group; where none is good, all stay as they are."""
        members, first = [], 0
        for group, part in zip(self.groups, stepped, strict=True):
            rows = slice(first, first + group.size)
            first += group.size
            members.append(_reseed(part.states, bad[rows], log_weights[rows]))
        return tuple(members)


def bank(
    learners: Sequence[Any] | Callable[..., Learner],
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    share: float = 1e-3,
    voices: Voices | None = None,
) -> Bank:
    """Learners side by side, their predictions mixed by how likely each made the data so far.

    `learners` is a list of learners of one model, or a function that makes one from the names of `grid`, whose points
    then all run; those that differ in numbers only (prior, fading, prior weight) are computed as one. The mixture's log
    loss is never above that of its best member by more than `regret_bound`, ln(M) in all for `share` 0. `share` lets
    weights come back when another member becomes the best: that much of the weight is dealt out evenly at each step.

    >>> import jax.numpy as jnp
    >>> import natkal as nk
    >>> model = nk.static_model(lambda w, u: w * u, jnp.zeros(()), nk.families.Gaussian(1.0))
    >>> mixed = nk.bank([nk.online(model, prior_cov=cov) for cov in (0.1, 10.0)], share=0.0)
    >>> state, info = nk.run(mixed, mixed.init(jnp.zeros(())), jnp.ones(9), jnp.full(9, 3.0))
    >>> mixed.size, round(float(state.params), 2)  # the wide prior was right
    (2, 2.97)
    """
    if not 0 <= share < 1:
        raise ValueError(f"share: must lie in [0, 1), got {share}")
    if callable(learners):
        if grid is None:
            raise ValueError("grid: a function that makes learners needs a grid of values")
        groups = (from_grid(learners, grid),)
    elif grid is not None:
        raise ValueError("grid: only goes with a function that makes a learner from its names")
    else:
        groups = from_learners(learners)
    return Bank(groups=groups, voices=voices, share=share)


def _best(log_weights: Float[Array, "m v"]) -> Int[Array, ""]:
    return jnp.argmax(logsumexp(log_weights, axis=1))


def _pick(parts: Sequence[Any], index: Array) -> Any:
    """One member's part of states that are stacked group by group."""
    return jax.tree.map(lambda leaf: leaf[index], _join(parts))


def _join(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


def _repeat(memory: Any, count: int) -> Any:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), memory)


def _reseed(states: LearnerState, bad: Bool[Array, " m"], log_weights: Float[Array, "m v"]) -> LearnerState:
    """A copy of the best good member in the place of each bad one, its own random key kept.

    A loop that hardly ever runs: where nothing is bad it leaves the states in place, while a `cond` would copy them.
    """

    def copy(carried: tuple[LearnerState, Bool[Array, " m"]]) -> tuple[LearnerState, Bool[Array, " m"]]:
        states, bad = carried
        source = jnp.argmax(jnp.where(bad, -jnp.inf, logsumexp(log_weights, axis=1)))

        def one(leaf: Array) -> Array:
            where = bad.reshape(bad.shape + (1,) * (leaf.ndim - 1))
            return jnp.where(where, leaf[source][None], leaf)

        return jax.tree.map(one, states._replace(key=None))._replace(key=states.key), jnp.zeros_like(bad)

    return jax.lax.while_loop(lambda carried: jnp.any(carried[1]) & ~jnp.all(carried[1]), copy, (states, bad))[0]


def _surprise(model: Model, mixture: Mixture, target: Array) -> Float[Array, ""]:
    """(T - mean)' Cov^+ (T - mean) / rank, entry by entry: the mean over entries of squared standardised errors."""
    dtype = mixture.mean.dtype
    statistic = as_float(model.outputs.sufficient_statistic(target), dtype)
    variance = jnp.diagonal(mixture.total_cov)
    square = jnp.square(statistic - mixture.mean) / jnp.where(variance > 0, variance, 1.0)
    return jnp.nanmean(jnp.where(variance > 0, square, jnp.nan))


def _over_rows(bank: Bank, prediction: Mixture, compute: Callable[[Mixture, Array], Array], value: Any) -> Array:
    """`compute` for one prediction, or for each of a stack."""
    dtype = prediction.mean.dtype
    if prediction.mean.ndim == 1:
        return jax.jit(compute)(prediction, jnp.asarray(value, dtype))
    stacked = jnp.ndim(value) > 0
    return jax.jit(jax.vmap(compute, in_axes=(0, 0 if stacked else None)))(prediction, jnp.asarray(value, dtype))
