"""Observations that count for more or less than one."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from natkal.families.around import Around
from natkal.families.base import Event, Family, Natural, Observed, Raw, as_float
from natkal.typing import Array, Float


@dataclasses.dataclass(frozen=True, eq=False)
class Weighted(Around):
    """`p(y | nu)^w` for an observation (y, w) of a scalar family: score, Fisher matrix and log p are w times its own.

    The family itself is unchanged (mean, covariance, root, draws of weight 1). A weight of 0 is a missing observation.

    >>> import jax.numpy as jnp
    >>> from natkal.families import Gaussian
    >>> Weighted(Gaussian(1.0)).observe(jnp.array([1.0]), jnp.array([3.0, 0.5])).score.tolist()
    [1.0]
    """

    def __post_init__(self) -> None:
        if self.family.event_shape != ():
            raise ValueError(f"family: Weighted takes families of one number, got {self.family}")

    @property
    def event_shape(self) -> tuple[int, ...]:
        """An observation and its weight."""
        return (2,)

    @property
    def domain(self) -> str:
        """The family's own, with a weight."""
        return f"{self.family.domain} with a weight of at least 0"

    @property
    def unweighted(self) -> Family:
        """The family of y alone."""
        return self.family

    def inner(self, y: Event) -> Event:
        """The observation without its weight."""
        return y[0]

    def sample(self, key: Array, natural: Natural) -> Event:
        """One draw, of weight 1."""
        drawn = as_float(self.family.sample(key, natural), natural.dtype)
        return jnp.stack([drawn, jnp.ones_like(drawn)])

    def log_prob(self, natural: Natural, y: Event) -> Float[Array, ""]:
        """w log p(y | nu)."""
        return y[1] * super().log_prob(natural, y)

    def error(self, natural: Natural, y: Event) -> Natural:
        """w (T(y) - mean)."""
        return y[1] * super().error(natural, y)

    def score(self, raw: Raw, y: Event) -> Raw:
        """w d log p / d raw."""
        return y[1] * super().score(raw, y)

    def observe(self, raw: Raw, y: Event) -> Observed:
        """What the observation says, w times."""
        return _times(y[1], self.family.observe(raw, y[0]))

    def observe_natural(self, natural: Natural, y: Event) -> Observed:
        """What the observation says in natural coordinates, w times."""
        return _times(y[1], self.family.observe_natural(natural, y[0]))

    def in_domain(self, targets: np.ndarray) -> np.ndarray:
        """A possible y, and a finite weight of at least 0."""
        return self.family.in_domain(targets[:, 0]) & np.isfinite(targets[:, 1]) & (targets[:, 1] >= 0)


def _times(weight: Array, observed: Observed) -> Observed:
    """What an observation of this weight says; one of weight 0 says nothing."""
    weight = as_float(weight, observed.score.dtype)
    counted = jnp.where(weight > 0, weight, 0.0)
    return Observed(
        score=counted * observed.score,
        root=jnp.sqrt(counted) * observed.root,
        log_prob=counted * observed.log_prob,
        present=observed.present & (weight > 0),
    )
