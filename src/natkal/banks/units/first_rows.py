"""What to expect of a target before its scale is known: the centre of the first ones, or the last one.

Both have predicted all of the first targets but two. With squared errors S over n targets and a variance that is not
known, the evidence for a predictor is S^(-n/2); the last value has odds of LAST_ODDS to begin with. So rows in no order
are predicted by their centre, and a series that wanders by its last value.
"""

import jax
import jax.numpy as jnp
import numpy as np

from natkal.typing import Array, Float

LAST_ODDS = float(np.exp(-1))


def expected_next(values: Float[Array, "n *e"], centre: Float[Array, "*e"]) -> Float[Array, "*e"]:
    """The next of these values, NaN where there is none yet: their `centre`, or the last one, by their evidence."""
    there = jnp.isfinite(values)
    size = jnp.max(jnp.where(there, jnp.abs(values), 0.0), axis=0)
    unit = jnp.where(size > 0, size, 1.0)
    scaled = jnp.where(there, values, 0.0) / unit[None]
    count = jnp.cumsum(there, axis=0)
    means = jnp.cumsum(scaled, axis=0) / jnp.maximum(count, 1)
    place = jnp.arange(len(values)).reshape(-1, *(1,) * (values.ndim - 1))
    newest = jax.lax.cummax(jnp.where(there, place, jnp.zeros_like(place)), axis=0)
    lasts = jnp.take_along_axis(scaled, newest, axis=0)
    compared = there[1:] & (count[:-1] > 1)

    def squares(predicted: Array) -> Array:
        errors = jnp.where(compared, scaled[1:] - predicted[:-1], 0.0)
        return jnp.sum(jnp.square(errors), axis=0) + jnp.finfo(values.dtype).eps

    gain = jnp.log(squares(means)) - jnp.log(squares(lasts))
    weight = jax.nn.sigmoid(0.5 * jnp.sum(compared, axis=0) * gain + np.log(LAST_ODDS))
    return jnp.where(count[-1] > 0, centre + weight * (unit * lasts[-1] - centre), centre)
