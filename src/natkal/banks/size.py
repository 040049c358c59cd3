"""A bank with fewer members, or more."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from natkal.banks.group import from_learners
from natkal.banks.state import BankState
from natkal.engine import Learner


def pruned(bank: Any, state: BankState, keep: int) -> tuple[Any, BankState]:
    """The `keep` members of largest weight and their states."""
    if not 1 <= keep <= bank.size:
        raise ValueError(f"keep: must lie in 1..{bank.size}, got {keep}")
    if bank.selection is not None:
        raise ValueError("prune: this bank selects its members by itself")
    chosen = np.sort(np.argsort(-np.asarray(logsumexp(state.log_weights, axis=1)))[:keep])
    groups, members = [], []
    for (group, rows), states in zip(bank.rows(), state.members, strict=True):
        own = [int(index - rows.start) for index in chosen if rows.start <= index < rows.stop]
        if own:
            groups.append(group.take(own))
            members.append(jax.tree.map(lambda leaf, own=own: leaf[np.asarray(own)], states))
    weights = state.log_weights[chosen]
    return dataclasses.replace(bank, groups=tuple(groups)), state._replace(
        members=tuple(members),
        noise=jax.tree.map(lambda leaf: leaf[chosen], state.noise),
        log_weights=weights - logsumexp(weights),
        memory=state.memory[chosen],
        prior_left=state.prior_left[chosen],
        silent=state.silent[chosen],
    )


def grown(bank: Any, state: BankState, learners: Sequence[Learner]) -> tuple[Any, BankState]:
    """More members, which start from the best one's parameters with their own prior; they share its weight."""
    added = from_learners(learners)
    count = sum(group.size for group in added)
    best = jnp.argmax(logsumexp(state.log_weights, axis=1))
    params = bank.best(state)[1].params
    members = tuple(group.init(params, jax.random.split(jax.random.key(bank.size), group.size)) for group in added)
    # the best member's own weight is split evenly between itself and the new members, law by law
    split = state.log_weights[best] - jnp.log(count + 1.0).astype(state.log_weights.dtype)
    log_weights = state.log_weights.at[best].set(split)
    dtype = log_weights.dtype
    grown = state._replace(
        members=state.members + members,
        noise=jax.tree.map(
            lambda leaf: jnp.concatenate([leaf, jnp.repeat(leaf[best][None], count, axis=0)]), state.noise
        ),
        log_weights=jnp.concatenate([log_weights, jnp.repeat(split[None], count, axis=0)]),
        memory=jnp.concatenate([state.memory, jnp.zeros(count, dtype)]),
        prior_left=jnp.concatenate([state.prior_left, jnp.ones(count, dtype)]),
        silent=jnp.concatenate([state.silent, jnp.full(count, -1, jnp.int32)]),
    )
    return dataclasses.replace(bank, groups=bank.groups + added), grown
