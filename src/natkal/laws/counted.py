"""Laws of observations that come with a weight."""

import dataclasses
from typing import Any

import jax.numpy as jnp

from natkal.families.base import Event
from natkal.laws.base import Laws, Moments
from natkal.typing import Array, Float


@dataclasses.dataclass(frozen=True)
class Counted:
    """Another family's laws, for observations (y, w) that count w times: log p is w times theirs."""

    inner: Laws

    @property
    def unweighted(self) -> Laws:
        """The laws of y alone."""
        return self.inner

    @property
    def count(self) -> int:
        """As many."""
        return self.inner.count

    def start(self, dtype: Any) -> Any:
        """The same memory."""
        return self.inner.start(dtype)

    def needed(self, prediction: Any) -> Any:
        """The same."""
        return self.inner.needed(prediction)

    def laws(self, memory: Any, prediction: Any, ahead: Any = 0) -> Any:
        """The same laws."""
        return self.inner.laws(memory, prediction, ahead)

    def observe(self, memory: Any, prediction: Any, y: Event) -> Any:
        """The noise of y, whatever it counts for; nothing where it counts for nothing."""
        return self.inner.observe(memory, prediction, jnp.where(y[1] > 0, y[0], jnp.nan))

    def log_prob(self, law: Any, y: Event) -> Float[Array, ""]:
        """w log p(y)."""
        return y[1] * self.inner.log_prob(law, y[0])

    def moments(self, law: Any) -> Moments:
        """Of one observation that counts once."""
        return self.inner.moments(law)

    def cdf(self, law: Any, y: Array) -> Array:
        """P(Y <= y) of y itself."""
        return self.inner.cdf(law, y)

    def sample(self, law: Any, key: Array) -> Array:
        """One draw, of weight 1."""
        drawn = self.inner.sample(law, key)
        return jnp.stack([drawn, jnp.ones_like(drawn)])

    def rescaled(self, law: Any, location: Array, scale: Array) -> Any:
        """As the inner laws do."""
        return self.inner.rescaled(law, location, scale)

    def units(self, memory: Any, dtype: Any) -> Float[Array, " v"]:
        """As the inner laws do."""
        return self.inner.units(memory, dtype)

    def along(self, memory: Any, prediction: Any, y: Event) -> Any:
        """As the inner laws do, of y alone."""
        return self.inner.along(memory, prediction, y[0])

    def in_units(self, memory: Any, factor: Array) -> Any:
        """As the inner laws do."""
        return self.inner.in_units(memory, factor)
