"""Which Fisher matrix an observation adds: exact, Monte Carlo, or the outer product (after Def. 1)."""

import dataclasses
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from natkal.families.base import Event, Family, Observed, as_float
from natkal.typing import Array, Float


@runtime_checkable
class Fisher(Protocol):
    """A rule for the factor C of the Fisher matrix C C' of an observation, in raw coordinates."""

    @property
    def random(self) -> bool:
        """Whether the rule draws, and so needs a new key at every step."""
        ...

    def factor(self, outputs: Family, raw: Float[Array, " k"], observed: Observed, y: Event, key: Array) -> Array:
        """The (k, r) factor for an observation y."""
        ...


@dataclasses.dataclass(frozen=True)
class Exact:
    """E over y ~ p(. | raw), in closed form."""

    random = False

    def factor(self, outputs: Family, raw: Float[Array, " k"], observed: Observed, y: Event, key: Array) -> Array:
        """The family's own root of its Fisher matrix."""
        return observed.root


@dataclasses.dataclass(frozen=True)
class Sampled:
    """Monte Carlo: unbiased, one backward pass per draw."""

    draws: int
    random = True

    def factor(self, outputs: Family, raw: Float[Array, " k"], observed: Observed, y: Event, key: Array) -> Array:
        """Scores of draws from p(. | raw) that miss what y misses, over the square root of their number."""
        natural = outputs.link(raw)
        missing = jnp.isnan(as_float(y, raw.dtype))

        def one(key: Array) -> Float[Array, " k"]:
            drawn = as_float(outputs.sample(key, natural), raw.dtype)
            return outputs.observe(raw, jnp.where(missing, jnp.nan, drawn)).score

        scores = jax.vmap(one, out_axes=1)(jax.random.split(key, self.draws))
        return jnp.where(observed.present[:, None], scores, 0.0) / np.sqrt(self.draws).item()


@dataclasses.dataclass(frozen=True)
class OuterProduct:
    """The observed score in place of a drawn one: cheap, and biased."""

    random = False

    def factor(self, outputs: Family, raw: Float[Array, " k"], observed: Observed, y: Event, key: Array) -> Array:
        """The score itself, as one column."""
        return observed.score[:, None]


def exact() -> Exact:
    """The exact Fisher matrix of each observation (the default; the one the theorems are about)."""
    return Exact()


def sampled(draws: int = 1) -> Sampled:
    """The Fisher matrix estimated from `draws` observations drawn from the model's own prediction."""
    if draws < 1:
        raise ValueError(f"draws: must be at least 1, got {draws}")
    return Sampled(draws=draws)


def outer_product() -> OuterProduct:
    """The outer product of the observed gradient: often confused with the Fisher matrix, and biased."""
    return OuterProduct()
