"""The unscented observation step: the model's output at sigma points instead of its derivative."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.families.base import Family
from natkal.models import Linearization, Model
from natkal.models.base import ravel
from natkal.typing import Array, Float, Params


@dataclasses.dataclass(frozen=True, eq=False)
class UnscentedModel:
    """A static model linearised by regression over sigma points; build it with `unscented`.

    For a law N(theta, sd^2 I) of the parameters, raw(theta + d) ~ mean + A d with
        A_j = (raw(theta + h e_j) - raw(theta - h e_j)) / 2h,   h = sd sqrt(p + kappa)
        mean = kappa/(p + kappa) raw(theta) + sum_j (raw(theta + h e_j) + raw(theta - h e_j)) / 2(p + kappa)
    the sigma-point (statistical) linearisation: exact for affine models, free of derivatives, 2p + 1 evaluations.
    """

    inner: Model
    sd: float
    kappa: float

    @property
    def params(self) -> Params:
        """The structure of the parameters."""
        return self.inner.params

    @property
    def outputs(self) -> Family:
        """The law of an observation."""
        return self.inner.outputs

    @property
    def size(self) -> int:
        """How many numbers the parameters hold (p)."""
        return self.inner.size

    def init_carry(self, params: Params) -> Any:
        """Static models remember nothing."""
        return self.inner.init_carry(params)

    def restart(self, params: Params, carry: Any) -> Any:
        """Nothing to forget."""
        return carry

    def linearize(self, params: Params, carry: Any, inputs: Any) -> Linearization:
        """Predict at the sigma points, and regress."""
        flat = ravel(params)
        size = len(flat)
        width = self.sd * float(np.sqrt(size + self.kappa))

        def raw_at(point: Float[Array, " p"]) -> Float[Array, " k"]:
            return self.inner.linearize(self.inner.unravel(point), carry, inputs).raw

        shifts = width * jnp.eye(size, dtype=flat.dtype)
        above, below = (jax.vmap(lambda shift, sign=sign: raw_at(flat + sign * shift))(shifts) for sign in (1, -1))
        centre = raw_at(flat)
        mean = self.kappa / (size + self.kappa) * centre + jnp.sum(above + below, axis=0) / (2 * (size + self.kappa))
        jacobian = (above - below).T / (2 * width)

        def pullback(rows: Float[Array, "m k"]) -> Float[Array, "m p"]:
            return rows @ jacobian

        return Linearization(raw=mean, pullback=pullback, carry=carry)

    def correct(self, carry: Any, step: Float[Array, " p"]) -> Any:
        """Nothing to correct."""
        return carry

    def unravel(self, flat: Float[Array, " p"]) -> Array:
        """A flat vector as the parameter pytree."""
        return self.inner.unravel(flat)


def unscented(model: Model, *, sd: float, kappa: float = 0.0) -> UnscentedModel:
    """`model` seen through sigma points of standard deviation `sd` around the current parameters.

    Use it like any model: `nk.online(nk.unscented(model, sd=0.1), ...)`. Predictions are averages over the sigma
    points, and a unit at a kink or a plateau is seen at its width, not at a point. For small networks: 2p + 1
    evaluations per step.
    """
    if not sd > 0:
        raise ValueError(f"sd: must be positive, got {sd}")
    if not kappa >= 0:
        raise ValueError(f"kappa: must be at least 0, got {kappa}")
    if jax.tree.leaves(model.init_carry(model.params)):
        raise ValueError("model: carries a state from one observation to the next; unscented takes static models only")
    return UnscentedModel(inner=model, sd=sd, kappa=kappa)
