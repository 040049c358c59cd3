"""Cosines of random projections: a linear filter on them is nearly a Gaussian process."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from natkal.tables.learner.maps.base import drawn
from natkal.typing import Array

DIRECTIONS = 1_000
"""The stream of random numbers of the directions; those below are of the layers of networks."""


@dataclasses.dataclass(frozen=True)
class Cosines:
    """sqrt(2) cos(w_i' x + b_i), w_i normal of variance 1/d and b_i uniform, and then the numbers x themselves.

    With one prior variance for all of them this is nearly the Gaussian process with the kernel
    exp(-|x - x'|^2 / (2 d)), d the number of inputs `fan_in` (Rahimi and Recht, Random features for large-scale kernel
    machines, 2007). Each input has directions of its own. `nearness` multiplies the distances |x - x'| in the kernel.
    """

    fan_in: int = 1
    waves: int = 40
    seed: int = 0
    nearness: float = 1.0

    @property
    def name(self) -> str:
        """Near waves tell rows apart that are closer."""
        return "waves" if self.nearness == 1 else "near waves"

    def size(self, columns: int) -> int:
        """The cosines and the numbers."""
        return self.waves + columns

    def names(self, columns: Sequence[str]) -> list[str]:
        """Every cosine depends on all columns."""
        return [f"wave {wave} of {', '.join(columns)}" for wave in range(self.waves)] + list(columns)

    def __call__(self, features: Array) -> Array:
        """The cosines, then the numbers."""
        return jnp.concatenate([self.cosines(features), features])

    def cosines(self, features: Array) -> Array:
        """sqrt(2) cos(nearness w_i' x + b_i)."""
        directions = drawn(self.seed, DIRECTIONS, len(features), self.waves, self.fan_in).astype(features.dtype)
        phases = np.random.default_rng((self.seed, DIRECTIONS)).uniform(0, 2 * np.pi, self.waves).astype(features.dtype)
        return np.sqrt(2).astype(features.dtype) * jnp.cos(self.nearness * (features @ directions) + phases)
