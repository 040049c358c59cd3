"""Weights of experts: Bayes, and a fixed share that lets them come back."""

import math

import jax.numpy as jnp

from natkal.typing import Array, Bool, Float

MARGINAL_ROWS = 1024
"""The law of the target's own past has 1 / max(n, MARGINAL_ROWS) of the weight after n rows."""


def marginal_share(rows: Float[Array, ""]) -> Float[Array, ""]:
    """The share of the law of the target's own past after so many rows: it costs 1 + ln(n / 1,024) nats in n rows."""
    return 1 / jnp.maximum(rows, MARGINAL_ROWS)


def equal_log_weights(shape: tuple[int, ...], dtype: jnp.dtype) -> Float[Array, "*e"]:
    """1/E each."""
    return jnp.full(shape, -math.log(math.prod(shape)), dtype)


def mix(
    log_weights: Float[Array, "*e"],
    log_probs: Float[Array, "*e"],
    share: float,
    among: Bool[Array, "*e"] | None = None,
) -> tuple[Float[Array, ""], Float[Array, "*e"]]:
    """Log of the mixture's probability, and the weights after it: w <- (1 - a) w p / sum(w p) + a/E.

    `among`: the experts that take part, all unless given. The others have weight 0, and their part of a is not dealt
    out. An expert whose probability is not a number has none. Where no expert gives y any, the weights stay. One
    exponential and one logarithm for each expert: with few parameters these are most of what a bank costs.
    """
    takes_part = ~jnp.isnan(log_probs) if among is None else ~jnp.isnan(log_probs) & among
    joint = log_weights + jnp.where(takes_part, log_probs, -jnp.inf)
    highest = jnp.max(joint)
    top = jnp.where(jnp.isfinite(highest), highest, 0.0)
    parts = jnp.exp(joint - top)
    whole = jnp.sum(parts)
    total = jnp.log(whole) + top
    if share > 0:
        dealt = share if among is None else share * jnp.mean(among, dtype=parts.dtype)
        posterior = jnp.log((1 - dealt) / whole * parts + share / log_weights.size)
        posterior = posterior if among is None else jnp.where(among, posterior, -jnp.inf)
    else:
        posterior = joint - total
    return total, jnp.where(jnp.isfinite(total), posterior, log_weights)


def regret_bound(experts: int, observations: int, share: float = 0.0, switches: int = 0) -> float:
    """What the mixture may lose in all to the best sequence of experts with so many switches, in nats.

    With no share and no switches, ln E: the mixture is never worse than its best expert by more.
    """
    if share == 0.0:
        return math.log(experts) if switches == 0 else math.inf
    moved = share * (experts - 1) / experts
    stays = observations - 1 - switches
    return math.log(experts) - stays * math.log1p(-moved) - (switches * math.log(share / experts) if switches else 0.0)
