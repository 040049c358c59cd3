"""A family whose network speaks natural parameters directly."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from natkal.families.base import Event, Family, Natural, Raw
from natkal.families.product import Product
from natkal.typing import Array, Bool, Float


@dataclasses.dataclass(frozen=True, eq=False)
class _NaturalCoordinates(Family):
    """`family`, with raw = natural; every question but `link`, `score` and `root` goes to `family` itself."""

    family: Family

    def __repr__(self) -> str:
        return repr(self.family)

    @property
    def dim(self) -> int:
        return self.family.dim

    @property
    def raw_sizes(self) -> tuple[int, ...]:
        return (self.dim,)

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.family.event_shape

    @property
    def domain(self) -> str:
        return self.family.domain

    def sufficient_statistic(self, y: Event) -> Natural:
        return self.family.sufficient_statistic(y)

    def log_partition(self, natural: Natural) -> Float[Array, ""]:
        return self.family.log_partition(natural)

    def log_base(self, y: Event) -> Float[Array, ""]:
        return self.family.log_base(y)

    def natural(self, mean: Natural) -> Natural:
        return self.family.natural(mean)

    def sample(self, key: Array, natural: Natural) -> Event:
        return self.family.sample(key, natural)

    def mean(self, natural: Natural) -> Natural:
        return self.family.mean(natural)

    def cov(self, natural: Natural) -> Float[Array, "k k"]:
        return self.family.cov(natural)

    def noise_root(self, natural: Natural) -> Float[Array, "k r"]:
        return self.family.noise_root(natural)

    def log_prob(self, natural: Natural, y: Event) -> Float[Array, ""]:
        return self.family.log_prob(natural, y)

    def error(self, natural: Natural, y: Event) -> Natural:
        return self.family.error(natural, y)

    def link(self, raw: Raw) -> Natural:
        return raw

    def score(self, raw: Raw, y: Event) -> Raw:
        return self.family.error(raw, y)

    def root(self, raw: Raw) -> Float[Array, "raw r"]:
        return self.family.noise_root(raw)

    def curved(self, raw: Raw) -> Bool[Array, " raw"]:
        # Quadratic in all of raw, through a linear link, is quadratic in natural.
        return jnp.broadcast_to(jnp.any(self.family.curved(raw)), raw.shape)

    def in_domain(self, targets: np.ndarray) -> np.ndarray:
        return self.family.in_domain(targets)


def in_natural_coordinates(family: Family) -> Family:
    """The same family, for a model that puts out natural parameters: link = identity.

    The score is then T(y) - mean(nu) (Appendix, `d log p / d beta = T - mean`) and the root that of Cov[T]. A natural
    parameter outside the domain is not caught: that is what raw coordinates and `link` are for.

    >>> import jax.numpy as jnp
    >>> from natkal.families import Exponential
    >>> in_natural_coordinates(Exponential()).score(jnp.array([-0.5]), jnp.array(3.0)).tolist()
    [1.0]
    """
    if isinstance(family, Product):  # part by part, so that a missing part leaves the others as they are
        return Product(*map(in_natural_coordinates, family.families))
    return family if isinstance(family, _NaturalCoordinates) else _NaturalCoordinates(family)
