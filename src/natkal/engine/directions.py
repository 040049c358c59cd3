"""Many outputs, few backward passes: follow only the combinations of outputs that the observation speaks of."""

from typing import NamedTuple

import jax.numpy as jnp

from natkal.typing import Array, Float


class Directions(NamedTuple):
    """Combinations T' raw of the outputs, the factor and score in those coordinates, and `lift`: back to raw."""

    basis: Float[Array, "k m"]
    factor: Float[Array, "m r"]
    score: Float[Array, " m"]
    lift: Float[Array, "k m"]


def along_scores(factor: Float[Array, "k r"], score: Float[Array, " k"]) -> Directions:
    """T = [score, factor]: both gradient and Fisher matrix need no other pullback, whatever the number of outputs.

    The displacement x of raw is then known through T' x only; `lift` takes it to lie along the score, s (s' x) / |s|^2.
    """
    rank = factor.shape[1]
    unit = jnp.eye(rank + 1, dtype=factor.dtype)
    length = jnp.sum(jnp.square(score))
    along = score / jnp.where(length > 0, length, 1.0)
    return Directions(
        basis=jnp.concatenate([score[:, None], factor], axis=1),
        factor=unit[:, 1:],
        score=unit[0],
        lift=along[:, None] * unit[0][None, :],
    )
