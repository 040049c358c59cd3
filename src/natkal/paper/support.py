"""Every value an observation can take, for the families where there are finitely many: what enumeration sums over."""

import itertools
import math

import jax.numpy as jnp
import numpy as np

from natkal.families import Binomial, Categorical, Multinomial, Product
from natkal.families.base import Family
from natkal.typing import Array


def finite_support(family: Family, limit: int = 64) -> Array | None:
    """All possible y, one per row; None where they are infinitely many, or more than `limit`.

    >>> from natkal.families import Bernoulli, Poisson
    >>> finite_support(Bernoulli()).tolist(), finite_support(Poisson())
    ([0, 1], None)
    """
    values = _support(family, limit)
    return None if values is None or len(values) > limit else jnp.asarray(values)


def _support(family: Family, limit: int) -> np.ndarray | None:
    match family:
        case Binomial():
            return np.arange(family.n + 1)
        case Categorical():
            return np.arange(family.k)
        case Multinomial() if math.comb(family.n + family.k - 1, family.k - 1) <= limit:
            counts = itertools.product(range(family.n + 1), repeat=family.k)
            return np.array([row for row in counts if sum(row) == family.n])
        case Product():
            parts = [_support(part, limit) for part in family.families]
            known = [part.reshape(len(part), -1) for part in parts if part is not None]
            if len(known) < len(parts) or math.prod(len(part) for part in known) > limit:
                return None
            return np.array([np.concatenate(rows) for rows in itertools.product(*known)], float)
        case _:
            return None
