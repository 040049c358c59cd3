"""The seam: predictive laws that are made from one filter's prediction."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp

from natkal.families.base import Event
from natkal.typing import Array, Float


class Moments(NamedTuple):
    """Mean and covariance of T(y) under one law; the covariance is None where it follows from the mean (classes)."""

    mean: Float[Array, " k"]
    cov: Float[Array, "k k"] | None


@runtime_checkable
class Laws(Protocol):
    """Predictive laws made from one filter's prediction; a law is any pytree.

    `memory` is what was learned of the noise beside the filter. It has one entry for each member of a bank.
    """

    @property
    def count(self) -> int:
        """How many laws."""
        ...

    @property
    def unweighted(self) -> "Laws":
        """The laws of y itself, where observations come with a weight."""
        ...

    def start(self, dtype: Any) -> Any:
        """The memory before any observation."""
        ...

    def needed(self, prediction: Any) -> Any:
        """The prediction without what the laws do not look at."""
        ...

    def laws(self, memory: Any, prediction: Any, ahead: Any = 0) -> Any:
        """All laws, along a leading axis; `ahead` is how many observations lie between now and the predicted one."""
        ...

    def observe(self, memory: Any, prediction: Any, y: Event) -> Any:
        """The memory after y."""
        ...

    def log_prob(self, law: Any, y: Event) -> Float[Array, ""]:
        """Log p(y) under one law."""
        ...

    def moments(self, law: Any) -> Moments:
        """Mean and covariance under one law."""
        ...

    def cdf(self, law: Any, y: Float[Array, "*e"]) -> Float[Array, "*e"]:
        """P(Y <= y) under one law, entry by entry; classes have none."""
        ...

    def sample(self, law: Any, key: Array) -> Array:
        """One draw of y under one law."""
        ...

    def rescaled(self, law: Any, location: Array, scale: Array) -> Any:
        """The law of `location + scale y` where this one is the law of y."""
        ...

    def units(self, memory: Any, dtype: Any) -> Float[Array, " v"]:
        """For each law, the unit that the filter's parameters deviate in: that of the noise where it is learned."""
        ...

    def along(self, memory: Any, prediction: Any, y: Event) -> Any:
        """The memory after a y that was drawn and not observed: a level follows it, and nothing is learned."""
        ...

    def in_units(self, memory: Any, factor: Array) -> Any:
        """The same memory where the unit of y is `factor` times what it was."""
        ...


class Plain:
    """Laws of observations without a weight."""

    @property
    def unweighted(self) -> Any:
        """Themselves."""
        return self

    def needed(self, prediction: Any) -> Any:
        """All of it."""
        return prediction


class Memoryless(Plain):
    """Laws that learn nothing of their own, of targets that are not rescaled."""

    count: Any

    def start(self, dtype: Any) -> tuple[()]:
        """Nothing."""
        return ()

    def observe(self, memory: tuple[()], prediction: Any, y: Event) -> tuple[()]:
        """Nothing to learn."""
        return memory

    def rescaled(self, law: Any, location: Array, scale: Array) -> Any:
        """The law itself: classes have no units."""
        return law

    def units(self, memory: tuple[()], dtype: Any) -> Float[Array, " v"]:
        """The parameters' own."""
        return jnp.ones(self.count, dtype)

    def along(self, memory: tuple[()], prediction: Any, y: Event) -> tuple[()]:
        """Nothing to follow."""
        return memory

    def in_units(self, memory: tuple[()], factor: Array) -> tuple[()]:
        """Nothing that has a unit."""
        return memory
