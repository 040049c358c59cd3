"""Observations that count for more or less than one."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from natkal.families.base import Event, Family, Natural, Observed, Raw, as_float
from natkal.typing import Array, Bool, Float


@dataclasses.dataclass(frozen=True, eq=False)
class Weighted(Family):
    """`p(y | nu)^w` for an observation (y, w) of a scalar family: score, Fisher matrix and log p are w times its own.

    The family itself is unchanged (mean, covariance, draws of weight 1). A weight of 0 is a missing observation.

    >>> import jax.numpy as jnp
    >>> from natkal.families import Gaussian
    >>> Weighted(Gaussian(1.0)).observe(jnp.array([1.0]), jnp.array([3.0, 0.5])).score.tolist()
    [1.0]
    """

    family: Family

    def __post_init__(self) -> None:
        if self.family.event_shape != ():
            raise ValueError(f"family: Weighted takes families of one number, got {self.family}")

    @property
    def dim(self) -> int:
        """The family's own."""
        return self.family.dim

    @property
    def raw_sizes(self) -> tuple[int, ...]:
        """The family's own."""
        return self.family.raw_sizes

    @property
    def raw_dim(self) -> int:
        """The family's own."""
        return self.family.raw_dim

    @property
    def event_shape(self) -> tuple[int, ...]:
        """An observation and its weight."""
        return (2,)

    @property
    def domain(self) -> str:
        """The family's own, with a weight."""
        return f"{self.family.domain} with a weight of at least 0"

    def sufficient_statistic(self, y: Event) -> Natural:
        """T(y)."""
        return self.family.sufficient_statistic(y[0])

    def log_partition(self, natural: Natural) -> Float[Array, ""]:
        """Log Z(nu)."""
        return self.family.log_partition(natural)

    def log_base(self, y: Event) -> Float[Array, ""]:
        """Log base(y)."""
        return self.family.log_base(y[0])

    def natural(self, mean: Natural) -> Natural:
        """The family's own."""
        return self.family.natural(mean)

    def sample(self, key: Array, natural: Natural) -> Event:
        """One draw, of weight 1."""
        drawn = as_float(self.family.sample(key, natural), natural.dtype)
        return jnp.stack([drawn, jnp.ones_like(drawn)])

    def mean(self, natural: Natural) -> Natural:
        """E[T(y)]."""
        return self.family.mean(natural)

    def cov(self, natural: Natural) -> Float[Array, "k k"]:
        """Cov[T(y)], of one observation of weight 1."""
        return self.family.cov(natural)

    def noise_root(self, natural: Natural) -> Float[Array, "k r"]:
        """A root of Cov[T(y)]."""
        return self.family.noise_root(natural)

    def log_prob(self, natural: Natural, y: Event) -> Float[Array, ""]:
        """w log p(y | nu)."""
        return y[1] * self.family.log_prob(natural, y[0])

    def error(self, natural: Natural, y: Event) -> Natural:
        """w (T(y) - mean)."""
        return y[1] * self.family.error(natural, y[0])

    def link(self, raw: Raw) -> Natural:
        """The family's own."""
        return self.family.link(raw)

    def score(self, raw: Raw, y: Event) -> Raw:
        """w d log p / d raw."""
        return y[1] * self.family.score(raw, y[0])

    def root(self, raw: Raw) -> Float[Array, "raw r"]:
        """A root of the Fisher matrix of one observation of weight 1."""
        return self.family.root(raw)

    def observe(self, raw: Raw, y: Event) -> Observed:
        """What the observation says, w times."""
        weight = as_float(y[1], raw.dtype)
        present = weight > 0
        counted = jnp.where(present, weight, 0.0)
        observed = self.family.observe(raw, y[0])
        return Observed(
            score=counted * observed.score,
            root=jnp.sqrt(counted) * observed.root,
            log_prob=counted * observed.log_prob,
            present=observed.present & present,
        )

    def curved(self, raw: Raw) -> Bool[Array, " raw"]:
        """The family's own."""
        return self.family.curved(raw)

    def in_domain(self, targets: np.ndarray) -> np.ndarray:
        """A possible y, and a finite weight of at least 0."""
        return self.family.in_domain(targets[:, 0]) & np.isfinite(targets[:, 1]) & (targets[:, 1] >= 0)
