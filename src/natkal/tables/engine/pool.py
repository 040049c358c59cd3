"""The states of the models of many keys as one population: `banks/population.py` for each member of a bank.

The states of all keys are stacked along slots. The last slot belongs to no key: it is the population, the state that a
new key starts from. `pooled` is a pure function of the stacked states.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.banks.group import Group
from natkal.banks.population import Population, learned
from natkal.banks.scaled import Scaled
from natkal.banks.units.standardise import ScaledState
from natkal.compiling.policy import compile_quickly
from natkal.errors import StreamError
from natkal.models import ravel


def check_poolable(learner: Scaled) -> None:
    """Refuse members whose covariance is not kept in full."""
    for group in learner.bank.groups:
        first: Any = group.first
        if not hasattr(first.curvature, "kernel"):
            raise StreamError(
                f"pool: {first.model.size:,} parameters for each key are too many to pool, as their covariance is not "
                "kept in full; use --model linear and fewer features"
            )


def pooled(learner: Scaled, states: ScaledState, first: ScaledState) -> ScaledState:
    """The population learned from the slots that have learned something, and every slot under it as its prior.

    `first` is one state before any row, in the same scales: the prior that the population began with.
    """
    bank = states.bank
    seen = np.flatnonzero(np.asarray(bank.memory).max(axis=1) > 0)
    if not len(seen):
        return states
    noise = jax.tree.map(lambda leaf: jnp.mean(leaf[seen], axis=0), bank.noise)
    variances = np.square(np.asarray(learner.bank.noise_units(noise), float)).mean(axis=1)
    prior_left = np.asarray(bank.prior_left)
    members, offset = [], 0
    for group, own, start in zip(learner.bank.groups, bank.members, first.bank.members, strict=True):
        share = prior_left[:, offset : offset + group.size]
        members.append(_group(group, own, start, share, seen, variances[offset : offset + group.size]))
        offset += group.size
    log_weights = _weights(np.asarray(bank.log_weights), np.asarray(first.bank.log_weights), seen)
    unseen = np.setdiff1d(np.arange(len(bank.memory)), seen)
    return states._replace(
        bank=bank._replace(
            members=tuple(members),
            noise=jax.tree.map(lambda leaf, mean: leaf.at[unseen].set(mean), bank.noise, noise),
            log_weights=jnp.asarray(log_weights),
            prior_left=jnp.asarray(np.ones_like(prior_left)),
        )
    )


def _group(group: Group, own: Any, start: Any, share: np.ndarray, seen: np.ndarray, noise: np.ndarray) -> Any:
    """The members of one group, each a population of its own; a slot that is not seen becomes the population."""
    beliefs, believing = _programs(group)
    means, covs = (np.array(part, float) for part in beliefs(own))
    first_means, first_covs = (
        np.asarray(part, float)[0] for part in beliefs(jax.tree.map(lambda leaf: leaf[None], start))
    )
    unseen = np.setdiff1d(np.arange(len(means)), seen)
    for member in range(group.size):
        now = Population(means[-1, member], covs[-1, member])
        first = Population(first_means[member], first_covs[member])
        after, moved, moved_covs = learned(
            now, first, means[seen, member], covs[seen, member], share[seen, member], float(noise[member])
        )
        means[seen, member], covs[seen, member] = moved, moved_covs
        means[unseen, member], covs[unseen, member] = after.mean, after.cov
    return believing(own, means, covs)


@functools.lru_cache(maxsize=64)
def _programs(group: Group) -> tuple[Any, Any]:
    """Of the members of many keys: flat parameters and covariances; and the states that have these instead."""

    def beliefs(states: Any) -> Any:
        return group.map(lambda learner, own: (ravel(own.params), learner.covariance(own)), states)

    def believing(states: Any, means: Any, covs: Any) -> Any:
        return group.map(lambda learner, *parts: learner.believing(*parts), states, means, covs)  # pyright: ignore[reportAttributeAccessIssue]

    return compile_quickly(jax.vmap(beliefs)), compile_quickly(jax.vmap(believing))


def _weights(log_weights: np.ndarray, first: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Prior weights of the experts: the mean over the keys of their weights, one round of the same rule.

    The weights of a key are its prior weights times likelihoods, so they move with the prior.
    """
    before = log_weights[-1]
    mean = (np.exp(log_weights[seen]).sum(axis=0) + np.exp(first)) / (len(seen) + 1)
    after = np.log(mean / mean.sum())
    moved = log_weights + (after - before)
    highest = moved.max(axis=(1, 2), keepdims=True)
    moved = moved - highest - np.log(np.exp(moved - highest).sum(axis=(1, 2), keepdims=True))
    unseen = np.setdiff1d(np.arange(len(moved)), seen)
    moved[unseen] = after
    return moved
