"""Squares and products of two numbers: what a linear filter needs where pairs of columns decide."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from natkal.typing import Array

PAIRS = 2_000
"""The stream of random numbers that pairs are drawn from."""


@dataclasses.dataclass(frozen=True)
class Products:
    """Products of two of the columns `first`, their own squares too, and then all numbers.

    Where there are more than `most` products, `most` of them are drawn. Columns in `plain` are indicators, whose
    squares are themselves and are left out.
    """

    first: tuple[int, ...]
    plain: tuple[int, ...] = ()
    most: int = 210
    seed: int = 0
    name = "products"

    def size(self, columns: int) -> int:
        """The products and the numbers."""
        return len(self.pairs) + columns

    def names(self, columns: Sequence[str]) -> list[str]:
        """Of a product both columns."""
        return [f"{columns[one]} x {columns[other]}" for one, other in self.pairs] + list(columns)

    @functools.cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Which columns are multiplied."""
        every = itertools.combinations_with_replacement(self.first, 2)
        found = [(one, other) for one, other in every if one != other or one not in self.plain]
        if len(found) <= self.most:
            return tuple(found)
        chosen = np.random.default_rng((self.seed, PAIRS)).permutation(len(found))[: self.most]
        return tuple(found[place] for place in sorted(chosen.tolist()))

    def __call__(self, features: Array) -> Array:
        """The products, then the numbers."""
        if not self.pairs:
            return features
        each = np.arange(len(features))
        left, right = (
            jnp.asarray(each[:, None] == np.array(side)[None], features.dtype) for side in zip(*self.pairs, strict=True)
        )
        return jnp.concatenate([(features @ left) * (features @ right), features])
