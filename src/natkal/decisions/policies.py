"""How an arm is chosen from what is known of all of them, and with which probability."""

import dataclasses
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from natkal import linalg
from natkal.decisions.best_arm import best_of_two, estimated, estimated_of_all
from natkal.decisions.forced_trials import hardly_known
from natkal.decisions.wild_rewards import Sizes
from natkal.decisions.worth_trying import pays_to_try
from natkal.engine.joint import JointLaw
from natkal.families.base import Family
from natkal.typing import Array, Bool, Float, Int

FORCED_SHARE = 0.5
"""The part of the decisions in which one of the arms of which hardly anything is known has its turn."""


class Knowledge(NamedTuple):
    """What a policy may use: the law of a reward, the joint law of the arms and which of them there are, the scales of
    a draw and their weights, and how large rewards were.
    """

    family: Family
    law: JointLaw
    available: Bool[Array, " n"]
    scales: Float[Array, " s"]
    log_scales: Float[Array, " s"]
    seen: Sizes

    @property
    def expected(self) -> Float[Array, " n"]:
        """The expected reward of each arm, members by their weights."""
        return jnp.exp(self.law.log_weights) @ self.law.mean


class Candidates(NamedTuple):
    """Which arms a draw may choose, and which are tried by force because hardly anything is known of them."""

    drawn: Bool[Array, " n"]
    forced: Bool[Array, " n"]


class Choice(NamedTuple):
    """An arm, the probability with which the policy chooses it here, and whether that is exact."""

    arm: Int[Array, ""]
    probability: Float[Array, ""]
    exact: Bool[Array, ""]


@runtime_checkable
class Policy(Protocol):
    """A rule that chooses one arm.

    A policy may have `scale`, the scale of its draws; None stands for one that the rewards decide.
    """

    def choose(self, known: Knowledge, key: Array) -> Choice:
        """An arm that is available, and the probability of choosing it."""
        ...

    def probabilities(self, known: Knowledge, key: Array) -> Float[Array, " n"]:
        """The probability of each arm; where it is estimated, `key` draws, and the estimates add up to 1."""
        ...


@dataclasses.dataclass(frozen=True)
class Thompson:
    """A draw of what each arm pays, from the posterior; build it with `thompson`."""

    draws: int
    scale: float | None
    floor: float = 0.0

    def choose(self, known: Knowledge, key: Array) -> Choice:
        """A member by its weight, a scale by its own, then all arms at once from the member's joint law.

        Where hardly anything is known of some arms, one of them has its turn in every other decision (`_forced`).
        """
        law, found = known.law, self._candidates(known)
        member_key, scale_key, draw_key, chance_key, forced_key = jax.random.split(key, 5)
        member = jax.random.categorical(member_key, law.log_weights)
        scale = known.scales[jax.random.categorical(scale_key, known.log_scales)]
        location, cov = law.location[member], law.cov[member]
        noise = jax.random.normal(draw_key, location.shape, location.dtype)
        drawn = location + scale * (linalg.semidefinite(cov).triangle() @ noise)
        best = jnp.argmax(jnp.where(found.drawn, drawn, -jnp.inf))
        coin_key, any_key, floor_key, uniform_key = jax.random.split(forced_key, 4)
        share, each = _forced(found)
        forced = jax.random.uniform(coin_key) < share
        anything = jax.random.categorical(any_key, jnp.where(found.forced, 0.0, -jnp.inf))
        arm = jnp.where(forced, anything, best)
        if self.floor > 0:
            uniform = jax.random.categorical(uniform_key, jnp.log(_equal(known.available)))
            arm = jnp.where(jax.random.uniform(floor_key) < self.floor, uniform, arm)
        if location.size == 1:
            return Choice(arm, jnp.ones((), location.dtype), jnp.asarray(True))
        if location.size == 2:
            both = best_of_two(law, known.scales, known.log_scales, arm)
            alone = jnp.where(found.drawn[arm], 1.0, 0.0)
            chance, exact = jnp.where(jnp.all(found.drawn), both, alone), True
        else:
            paths = estimated(law, known.scales, known.log_scales, found.drawn, arm, chance_key, self.draws)
            chance, exact = jnp.where(found.drawn[arm], paths, 0.0), False
        free = (1 - share) * chance + share * each[arm]
        mixed = (1 - self.floor) * free + self.floor * _equal(known.available)[arm]
        return Choice(arm, jnp.minimum(mixed, 1.0).astype(location.dtype), jnp.asarray(exact))

    def probabilities(self, known: Knowledge, key: Array) -> Float[Array, " n"]:
        """Of each arm, that it is the best one, mixed with the forced trials and the floor."""
        law, count, found = known.law, known.law.location.shape[1], self._candidates(known)
        if count == 1:
            return jnp.ones(1, law.location.dtype)
        if count == 2:
            first = best_of_two(law, known.scales, known.log_scales, 0)
            both = jnp.stack([first, 1 - first])
        else:
            both = estimated_of_all(law, known.scales, known.log_scales, found.drawn, key, self.draws)
        free = jnp.where(found.drawn, both, 0.0)
        share, each = _forced(found)
        tried = (1 - share) * free / jnp.sum(free) + share * each
        return ((1 - self.floor) * tried + self.floor * _equal(known.available)).astype(law.location.dtype)

    def _candidates(self, known: Knowledge) -> Candidates:
        """The arms to draw from; all of them, and none by force, where the scale is fixed."""
        if self.scale is not None:
            return Candidates(known.available, jnp.zeros(known.available.shape, bool))
        asked = known.family, known.law, known.available
        return Candidates(pays_to_try(*asked), hardly_known(*asked, known.seen))


def _equal(available: Bool[Array, " n"]) -> Float[Array, " n"]:
    """The same probability for each arm that is available."""
    return available / jnp.sum(available)


def _forced(found: Candidates) -> tuple[Float[Array, ""], Float[Array, " n"]]:
    """The probability of a forced trial, and that of each arm then: those that are hardly known have their turns."""
    count = jnp.sum(found.forced)
    return jnp.where(count > 0, FORCED_SHARE, 0.0), found.forced / jnp.maximum(count, 1)


@dataclasses.dataclass(frozen=True)
class UpperBound:
    """The arm with the largest mean plus `width` deviations; build it with `ucb`."""

    width: float

    def choose(self, known: Knowledge, key: Array) -> Choice:
        """Arms that tie are equally likely."""
        return _among_best(self._bounds(known), known.available, key)

    def probabilities(self, known: Knowledge, key: Array) -> Float[Array, " n"]:
        """1 for the best, shared where several are."""
        best = _is_best(self._bounds(known), known.available)
        return best / jnp.sum(best).astype(known.law.location.dtype)

    def _bounds(self, known: Knowledge) -> Float[Array, " n"]:
        """Mean and deviation are those of the mixture of the members' laws."""
        weights = jnp.exp(known.law.log_weights)
        mean = weights @ known.law.location
        own = jax.vmap(jnp.diagonal)(known.law.cov) + jnp.square(known.law.location - mean[None])
        return mean + self.width * jnp.sqrt(jnp.maximum(weights @ own, 0.0))


@dataclasses.dataclass(frozen=True)
class EpsilonGreedy:
    """Any arm with probability `share`, else the one of largest expected reward; build it with `epsilon_greedy`."""

    share: float

    def choose(self, known: Knowledge, key: Array) -> Choice:
        """A coin, then any arm or one of the best."""
        arm_key, best_key, coin_key = jax.random.split(key, 3)
        best = _among_best(known.expected, known.available, best_key)
        anything = jax.random.categorical(arm_key, jnp.where(known.available, 0.0, -jnp.inf))
        arm = jnp.where(jax.random.uniform(coin_key) < self.share, anything, best.arm)
        return Choice(arm, self.probabilities(known, key)[arm], jnp.asarray(True))

    def probabilities(self, known: Knowledge, key: Array) -> Float[Array, " n"]:
        """share / n + (1 - share) [arm is best] / ties."""
        best = _is_best(known.expected, known.available)
        chance = known.available * (self.share / jnp.sum(known.available)) + (1 - self.share) * best / jnp.sum(best)
        return chance.astype(known.expected.dtype)


def _is_best(values: Float[Array, " n"], available: Bool[Array, " n"]) -> Bool[Array, " n"]:
    return available & (values >= jnp.max(jnp.where(available, values, -jnp.inf)))


def _among_best(values: Float[Array, " n"], available: Bool[Array, " n"], key: Array) -> Choice:
    """One of the largest, each with the same probability."""
    best = _is_best(values, available)
    arm = jax.random.categorical(key, jnp.where(best, 0.0, -jnp.inf))
    return Choice(arm, (1 / jnp.sum(best)).astype(values.dtype), jnp.asarray(True))


def thompson(*, scale: float | None = None, draws: int = 64, floor: float = 0.0) -> Thompson:
    """Thompson sampling: each arm with the probability that it is the best one, as far as is known.

    `scale` multiplies the deviations of a draw; 1 is the posterior to the letter. Unless given, how much to explore is
    found from the rewards: each of a few scales predicts every reward, and Bayes weighs them; and only those arms are
    drawn of which more rewards could pay for what trying them costs (`worth_trying.py`). An arm that is not worth
    trying has the probability 0.

    `floor` is the share of decisions that goes to all available arms alike, so that each of n arms has at least the
    probability floor / n. The value of another policy can be estimated from a log without bias only if the log could
    have chosen every arm which that policy chooses: give a floor, such as 0.02, where the log has to serve for that.

    The law of what all arms pay is the posterior of the linearised model, so that one draw of it costs as much as a
    prediction. For two arms the probability of the choice is exact; for more it is estimated by `draws` paths, without
    bias, and never zero.
    """
    if draws < 1:
        raise ValueError(f"draws: must be at least 1, got {draws}")
    if scale is not None and not scale > 0:
        raise ValueError(f"scale: must be positive, got {scale}")
    if not 0 <= floor <= 1:
        raise ValueError(f"floor: must lie in [0, 1], got {floor}")
    return Thompson(draws, scale, float(floor))


def ucb(c: float = 1.0) -> UpperBound:
    """The arm with the largest upper bound, mean plus `c` deviations of what is not known of its mean."""
    if not c >= 0:
        raise ValueError(f"c: must be at least 0, got {c}")
    return UpperBound(float(c))


def epsilon_greedy(e: float = 0.1) -> EpsilonGreedy:
    """Any arm with probability `e`, else the arm with the largest expected reward."""
    if not 0 <= e <= 1:
        raise ValueError(f"e: must lie in [0, 1], got {e}")
    return EpsilonGreedy(float(e))


def greedy() -> EpsilonGreedy:
    """The arm with the largest expected reward; it explores by nothing but ties."""
    return EpsilonGreedy(0.0)
