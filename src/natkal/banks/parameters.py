"""What the members of a bank together know of their parameters: draws, covariance, the joint law of several outputs."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.special import logsumexp

from natkal.banks.group import joined
from natkal.banks.state import BankState
from natkal.engine.joint import JointLaw
from natkal.typing import Array, Float, Params


def drawn(bank: Any, state: BankState, key: Array) -> Params:
    """A member by its weight, then a draw of its parameters."""
    member_key, draw_key = jax.random.split(key)
    weights = logsumexp(state.log_weights, axis=1)
    draws = [
        group.map(lambda learner, own, key: learner.sample(own, key), own, jax.random.split(draw_key, group.size))
        for group, own in zip(bank.groups, state.members, strict=True)
    ]
    _check_one_model("sample", draws)
    chosen = jax.random.categorical(member_key, weights)
    return jax.tree.map(lambda leaf: leaf[chosen], joined(draws))


def total_covariance(bank: Any, state: BankState) -> Float[Array, "p p"]:
    """The mean of the members' covariances plus the covariance of their parameters."""
    if not all(hasattr(own, "params") for own in state.members):
        raise ValueError("covariance: a member of this bank has no parameters of its own; ask the members")
    _check_one_model("covariance", [own.params for own in state.members])
    weights = jnp.exp(logsumexp(state.log_weights, axis=1))
    covs = joined(
        [
            group.map(lambda learner, own: learner.covariance(own), own)
            for group, own in zip(bank.groups, state.members, strict=True)
        ]
    )
    params = joined([jax.vmap(lambda own: ravel_pytree(own)[0])(own.params) for own in state.members])
    apart = params - (weights @ params)[None]
    return jnp.einsum("m,mij->ij", weights, covs) + jnp.einsum("m,mi,mj->ij", weights, apart, apart)


def joint_law(bank: Any, state: BankState, inputs: Any) -> JointLaw:
    """The joint law of the outputs of several arms: those of the members, by their weights."""

    def one(learner: Any, kept: Any, own: Any) -> tuple[Any, JointLaw]:
        return kept, learner.joint(own, inputs)

    parts = [bank.asked(state, index, one) for index in range(len(bank.groups))]
    laws = jax.tree.map(lambda leaf: leaf[:, 0], joined(parts))
    by_law = jnp.where(bank.running(state)[:, None], state.log_weights, -jnp.inf)
    weights = logsumexp(by_law, axis=1)
    share = jnp.exp(by_law - jnp.where(jnp.isfinite(weights), weights, 0.0)[:, None])
    # what a member knows is in units of the noise, where its laws learn that
    unit = jnp.sum(share * jnp.square(bank.noise_units(state.noise)), axis=1)
    return laws._replace(
        log_weights=weights - logsumexp(weights),
        cov=laws.cov * unit[:, None, None],
        noise=laws.noise * unit[:, None],
    )


def _check_one_model(what: str, params: Sequence[Params]) -> None:
    shapes = {str(jax.tree.map(lambda leaf: leaf.shape[1:], own)) for own in params}
    if len(shapes) > 1:
        raise ValueError(f"{what}: the members of this bank have different models; ask one of them (`best`)")
