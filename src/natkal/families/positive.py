"""Positive observations: waiting times, sizes, amounts."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, xlogy
from jax.typing import ArrayLike

from natkal.families.base import Event, Family, Natural, Raw, Support, as_float
from natkal.families.checks import check_positive
from natkal.typing import Array, Float


@dataclasses.dataclass(frozen=True, eq=False)
class Gamma(Family):
    """A positive y of mean m and variance m^2 / shape, with known `shape`.

    T(y) = y, nu = -shape / m < 0, log Z = -shape log(-nu), base(y) = y^(shape - 1) / Gamma(shape). The raw output is
    a = log m, in which the score is shape (y / m - 1) and the Fisher information is `shape`, whatever a.

    >>> import jax.numpy as jnp
    >>> Gamma(3.0).score(jnp.array([0.0]), jnp.array(2.0)).tolist()
    [3.0]
    """

    support: ClassVar[Support] = "positive"

    shape: ArrayLike

    def __post_init__(self) -> None:
        check_positive("shape", self.shape)

    @property
    def dim(self) -> int:
        """One: T(y) = y."""
        return 1

    @property
    def domain(self) -> str:
        """y > 0."""
        return "the positive finite numbers"

    def sufficient_statistic(self, y: Event) -> Natural:
        """T(y) = y."""
        return jnp.reshape(as_float(y), (1,))

    def log_partition(self, natural: Natural) -> Float[Array, ""]:
        """-shape log(-nu)."""
        return -as_float(self.shape, natural.dtype) * jnp.log(-natural[0])

    def log_base(self, y: Event) -> Float[Array, ""]:
        """(shape - 1) log y - log Gamma(shape)."""
        value = as_float(y)
        shape = as_float(self.shape, value.dtype)
        return xlogy(shape - 1, value) - gammaln(shape)

    def natural(self, mean: Natural) -> Natural:
        """-shape / m."""
        return -as_float(self.shape, mean.dtype) / mean

    def sample(self, key: Array, natural: Natural) -> Event:
        """Draw y: a standard Gamma(shape) over the rate -nu."""
        return jax.random.gamma(key, as_float(self.shape, natural.dtype), dtype=natural.dtype) / -natural[0]

    def mean(self, natural: Natural) -> Natural:
        """-shape / nu."""
        return -as_float(self.shape, natural.dtype) / natural

    def cov(self, natural: Natural) -> Float[Array, "k k"]:
        """Shape / nu^2."""
        return jnp.square(self.noise_root(natural))

    def noise_root(self, natural: Natural) -> Float[Array, "k k"]:
        """-sqrt(shape) / nu."""
        return jnp.reshape(-jnp.sqrt(as_float(self.shape, natural.dtype)) / natural, (1, 1))

    def link(self, raw: Raw) -> Natural:
        """nu = -shape exp(-a), with a = log m."""
        return -as_float(self.shape, raw.dtype) * jnp.exp(-raw)

    def score(self, raw: Raw, y: Event) -> Raw:
        """Shape (y / m - 1)."""
        return as_float(self.shape, raw.dtype) * (as_float(y, raw.dtype) * jnp.exp(-raw) - 1)

    def root(self, raw: Raw) -> Float[Array, "raw raw"]:
        """sqrt(shape)."""
        return jnp.reshape(jnp.sqrt(as_float(self.shape, raw.dtype)), (1, 1))

    def in_domain(self, targets: np.ndarray) -> np.ndarray:
        """Finite and y > 0."""
        return np.isfinite(targets) & (targets > 0)


@dataclasses.dataclass(frozen=True, eq=False)
class Exponential(Gamma):
    """A waiting time y of mean m = -1 / nu: the Gamma of shape 1, which also allows y = 0.

    >>> import jax.numpy as jnp
    >>> Exponential().mean(jnp.array([-0.5])).tolist()
    [2.0]
    """

    shape: ArrayLike = dataclasses.field(default=1.0, init=False, repr=False)

    @property
    def domain(self) -> str:
        """y >= 0."""
        return "the finite numbers from 0 on"

    def in_domain(self, targets: np.ndarray) -> np.ndarray:
        """Finite and y >= 0."""
        return np.isfinite(targets) & (targets >= 0)
