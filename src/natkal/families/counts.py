"""Counts without an upper limit: Poisson, and the overdispersed negative binomial."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.typing import ArrayLike

from natkal.families.base import Event, Family, Natural, Raw, Support, as_float
from natkal.families.checks import are_counts, check_positive
from natkal.typing import Array, Float


class _Counts(Family):
    """What the two share: one real statistic T(y) = y of a count y."""

    support: ClassVar[Support] = "count"

    @property
    def dim(self) -> int:
        """One: T(y) = y."""
        return 1

    @property
    def domain(self) -> str:
        """0, 1, 2, ..."""
        return "the counts 0, 1, 2, ..."

    def sufficient_statistic(self, y: Event) -> Natural:
        """T(y) = y."""
        return jnp.reshape(as_float(y), (1,))

    def in_domain(self, targets: np.ndarray) -> np.ndarray:
        """Whole numbers, at least 0."""
        return are_counts(targets)


@dataclasses.dataclass(frozen=True, eq=False)
class Poisson(_Counts):
    """A count y with rate m = exp(nu).

    T(y) = y, log Z = exp(nu), base(y) = 1 / y!. The raw output is nu, the log rate.

    >>> import jax.numpy as jnp
    >>> Poisson().score(jnp.array([0.0]), jnp.array(3)).tolist()
    [2.0]
    """

    def log_partition(self, natural: Natural) -> Float[Array, ""]:
        """Log Z = exp(nu)."""
        return jnp.exp(natural[0])

    def log_base(self, y: Event) -> Float[Array, ""]:
        """-log y!."""
        return -gammaln(as_float(y) + 1)

    def natural(self, mean: Natural) -> Natural:
        """Log m."""
        return jnp.log(mean)

    def sample(self, key: Array, natural: Natural) -> Event:
        """Draw a count."""
        return jax.random.poisson(key, jnp.exp(natural[0]), dtype=int)

    def mean(self, natural: Natural) -> Natural:
        """exp nu."""
        return jnp.exp(natural)

    def cov(self, natural: Natural) -> Float[Array, "k k"]:
        """exp nu, the mean once more."""
        return jnp.reshape(jnp.exp(natural), (1, 1))

    def noise_root(self, natural: Natural) -> Float[Array, "k k"]:
        """exp(nu / 2)."""
        return jnp.reshape(jnp.exp(0.5 * natural), (1, 1))


@dataclasses.dataclass(frozen=True, eq=False)
class NegativeBinomial(_Counts):
    """A count y of mean m and variance m + m^2 / r: a Poisson whose rate is Gamma(r) distributed.

    T(y) = y, nu = log m / (m + r) < 0, log Z = -r log(1 - exp nu), base(y) = Gamma(y + r) / (Gamma(r) y!). The raw
    output is a = log m. With q = m / (m + r) = sigmoid(a - log r), the score in a is (1 - q) y - q r and the Fisher
    information r q: both stay finite where m overflows.

    >>> import jax.numpy as jnp
    >>> NegativeBinomial(4.0).root(jnp.array([200.0])).tolist()
    [[2.0]]
    """

    r: ArrayLike

    def __post_init__(self) -> None:
        check_positive("r", self.r)

    def log_partition(self, natural: Natural) -> Float[Array, ""]:
        """-r log(1 - exp nu), by log1p far from 0 and by expm1 near it."""
        nu = natural[0]
        far = nu < -1.0
        log_complement = jnp.where(
            far, jnp.log1p(-jnp.exp(jnp.where(far, nu, -1.0))), jnp.log(-jnp.expm1(jnp.where(far, -1.0, nu)))
        )
        return -as_float(self.r, natural.dtype) * log_complement

    def log_base(self, y: Event) -> Float[Array, ""]:
        """Log Gamma(y + r) / (Gamma(r) y!)."""
        value = as_float(y)
        r = as_float(self.r, value.dtype)
        return gammaln(value + r) - gammaln(r) - gammaln(value + 1)

    def natural(self, mean: Natural) -> Natural:
        """Log m / (m + r) = -log1p(r / m)."""
        return -jnp.log1p(as_float(self.r, mean.dtype) / mean)

    def sample(self, key: Array, natural: Natural) -> Event:
        """Draw a rate from Gamma(r) m / r, then a Poisson count of that rate."""
        rate_key, count_key = jax.random.split(key)
        rate = jax.random.gamma(rate_key, as_float(self.r, natural.dtype), dtype=natural.dtype) / jnp.expm1(-natural[0])
        return jax.random.poisson(count_key, rate, dtype=int)

    def mean(self, natural: Natural) -> Natural:
        """m = r / (exp(-nu) - 1)."""
        return as_float(self.r, natural.dtype) / jnp.expm1(-natural)

    def cov(self, natural: Natural) -> Float[Array, "k k"]:
        """m (m + r) / r = m / (1 - exp nu)."""
        return jnp.reshape(self.mean(natural) / -jnp.expm1(natural), (1, 1))

    def noise_root(self, natural: Natural) -> Float[Array, "k k"]:
        """sqrt(r) exp(nu / 2) / (1 - exp nu)."""
        root = jnp.sqrt(as_float(self.r, natural.dtype)) * jnp.exp(0.5 * natural) / -jnp.expm1(natural)
        return jnp.reshape(root, (1, 1))

    def link(self, raw: Raw) -> Natural:
        """nu = -log(1 + r exp(-a)), with a = log m."""
        return -jax.nn.softplus(jnp.log(as_float(self.r, raw.dtype)) - raw)

    def score(self, raw: Raw, y: Event) -> Raw:
        """(1 - q) y - q r."""
        r = as_float(self.r, raw.dtype)
        logit = raw - jnp.log(r)
        return jax.nn.sigmoid(-logit) * as_float(y, raw.dtype) - jax.nn.sigmoid(logit) * r

    def root(self, raw: Raw) -> Float[Array, "raw raw"]:
        """sqrt(r q)."""
        r = as_float(self.r, raw.dtype)
        return jnp.reshape(jnp.sqrt(r) * jnp.exp(0.5 * jax.nn.log_sigmoid(raw - jnp.log(r))), (1, 1))
