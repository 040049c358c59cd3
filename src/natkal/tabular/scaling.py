"""Running mean and variance in float64: each row is scaled by what came before it, never by itself."""

from typing import NamedTuple

import jax.numpy as jnp

from natkal.typing import Array, Float

LIMIT = 8.0
"""A standardised feature is cut off here: the first rows know little of the scale."""


class Running(NamedTuple):
    """How many values, their mean, and the sum of squared deviations from it (Welford), for each column."""

    seen: Float[Array, "*d"]
    mean: Float[Array, "*d"]
    squares: Float[Array, "*d"]

    @classmethod
    def start(cls, columns: int) -> "Running":
        """Nothing seen."""
        return cls(seen=jnp.zeros(columns), mean=jnp.zeros(columns), squares=jnp.zeros(columns))


def observe(running: Running, values: Float[Array, "*d"]) -> Running:
    """One more value of each column; a NaN is missing and changes nothing.

    n <- n + 1,  m <- m + (x - m)/n,  s <- s + (x - m_old)(x - m_new).
    """
    present = ~jnp.isnan(values)
    count = running.seen + present
    before = jnp.where(present, values - running.mean, 0.0)
    mean = running.mean + before / jnp.maximum(count, 1.0)
    after = jnp.where(present, values - mean, 0.0)
    return Running(seen=count, mean=mean, squares=running.squares + before * after)


def location_scale(running: Running) -> tuple[Array, Array]:
    """Mean and standard deviation so far; the deviation is NaN until two different values have been seen."""
    return running.mean, jnp.sqrt(jnp.where(running.squares > 0, running.squares / running.seen, jnp.nan))


def standardise(running: Running, values: Float[Array, " d"]) -> Float[Array, " d"]:
    """(x - mean) / sd, cut off at +-`LIMIT`; 0, the mean, where x is missing or there is no scale yet."""
    location, scale = location_scale(running)
    scaled = (values - location) / scale
    return jnp.where(jnp.isnan(scaled), 0.0, jnp.clip(scaled, -LIMIT, LIMIT))
