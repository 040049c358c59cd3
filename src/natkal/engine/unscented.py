"""The unscented observation step: the model's output at sigma points instead of its derivative."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.families.base import Family
from natkal.models import Feed, Linearization, Model, Rollout
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
        raw, jacobian = self._regress(params, lambda point: self.inner.linearize(point, carry, inputs).raw)
        return Linearization(
            raw=raw,
            pullback=lambda rows: rows @ jacobian,
            carry=carry,
            correct=lambda step, rows, factor, score: carry,
        )

    def roll(self, params: Params, carry: Any, inputs: Any, horizon: int, feed: Feed | None) -> Rollout:
        """All outputs at the sigma points, and one regression; noise that is fed back as the inner model has it."""
        at_params = self.inner.roll(params, carry, inputs, horizon, feed)
        shape = at_params.raw.shape

        def raws(point: Params) -> Array:
            return self.inner.roll(point, carry, inputs, horizon, feed).raw.ravel()

        raw, jacobian = self._regress(params, raws)
        return Rollout(raw=raw.reshape(shape), rows=jacobian.reshape(*shape, -1), spread=at_params.spread)

    def with_outputs(self, family: Family) -> "UnscentedModel":
        """The same sigma points around the same function, its outputs read as those of `family`."""
        return dataclasses.replace(self, inner=self.inner.with_outputs(family))

    def _regress(self, params: Params, function: Callable[[Params], Array]) -> tuple[Array, Array]:
        """The mean of `function` over the sigma points, and its regression on the parameters."""
        flat = ravel(params)
        size = len(flat)
        width = self.sd * float(np.sqrt(size + self.kappa))

        def at(point: Float[Array, " p"]) -> Float[Array, " k"]:
            return function(self.inner.unravel(point))

        shifts = width * jnp.eye(size, dtype=flat.dtype)
        above, below = (jax.vmap(lambda shift, sign=sign: at(flat + sign * shift))(shifts) for sign in (1, -1))
        total = size + self.kappa
        mean = self.kappa / total * at(flat) + jnp.sum(above + below, axis=0) / (2 * total)
        return mean, (above - below).T / (2 * width)

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
