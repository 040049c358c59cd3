"""A family whose network speaks natural parameters directly."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from natkal.families.around import Around
from natkal.families.base import Event, Family, Natural, Observed, Raw
from natkal.families.product import Product
from natkal.typing import Array, Bool, Float


@dataclasses.dataclass(frozen=True, eq=False)
class _NaturalCoordinates(Around):
    """`family`, with raw = natural."""

    def __repr__(self) -> str:
        return repr(self.family)

    @property
    def raw_dim(self) -> int:
        return self.dim

    @property
    def raw_sizes(self) -> tuple[int, ...]:
        return (self.dim,)

    def link(self, raw: Raw) -> Natural:
        return raw

    def score(self, raw: Raw, y: Event) -> Raw:
        return self.family.error(raw, y)

    def root(self, raw: Raw) -> Float[Array, "raw r"]:
        return self.family.noise_root(raw)

    def observe(self, raw: Raw, y: Event) -> Observed:
        return self.family.observe_natural(raw, y)

    def possible(self, targets: np.ndarray) -> np.ndarray:
        return self.family.possible(targets)

    def curved(self, raw: Raw) -> Bool[Array, " raw"]:
        # Quadratic in all of raw, through a linear link, is quadratic in natural.
        return jnp.broadcast_to(jnp.any(self.family.curved(raw)), raw.shape)


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
