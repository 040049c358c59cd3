"""Yes-or-no observations, and how many yeses in n trials."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from natkal.families.base import Event, Family, Natural, Support, as_float
from natkal.families.checks import are_counts, check_whole
from natkal.typing import Array, Float


@dataclasses.dataclass(frozen=True, eq=False)
class Binomial(Family):
    """The number of successes y in `n` trials of probability p = sigmoid(nu).

    T(y) = y, nu = log p / (1 - p), log Z = n softplus(nu), base(y) = n choose y. The raw output is nu. Nothing is
    computed as 1 - p: that is sigmoid(-nu), right to the last digit at any logit.

    >>> import jax.numpy as jnp
    >>> Binomial(10).mean(jnp.array([0.0])).tolist()
    [5.0]
    """

    n: int

    def __post_init__(self) -> None:
        check_whole("n", self.n, least=1)

    @property
    def dim(self) -> int:
        """One: T(y) = y."""
        return 1

    @property
    def domain(self) -> str:
        """0 .. n."""
        return f"the counts 0..{self.n}"

    def sufficient_statistic(self, y: Event) -> Natural:
        """T(y) = y."""
        return jnp.reshape(as_float(y), (1,))

    def log_partition(self, natural: Natural) -> Float[Array, ""]:
        """Log Z = n log(1 + exp nu)."""
        return self.n * jax.nn.softplus(natural[0])

    def log_base(self, y: Event) -> Float[Array, ""]:
        """Log of n choose y."""
        value = as_float(y)
        total = jnp.full_like(value, self.n + 1)
        return gammaln(total) - gammaln(value + 1) - gammaln(total - value)

    def natural(self, mean: Natural) -> Natural:
        """nu = log m / (n - m)."""
        return jnp.log(mean) - jnp.log(self.n - mean)

    def sample(self, key: Array, natural: Natural) -> Event:
        """Draw the number of successes."""
        probability = jax.nn.sigmoid(natural[0])
        return jax.random.binomial(key, self.n, probability, dtype=natural.dtype).astype(int)

    def mean(self, natural: Natural) -> Natural:
        """n p."""
        return self.n * jax.nn.sigmoid(natural)

    def cov(self, natural: Natural) -> Float[Array, "k k"]:
        """n p (1 - p)."""
        return jnp.reshape(self.n * jax.nn.sigmoid(natural) * jax.nn.sigmoid(-natural), (1, 1))

    def noise_root(self, natural: Natural) -> Float[Array, "k k"]:
        """sqrt(n p (1 - p)), through logarithms."""
        log_variance = jax.nn.log_sigmoid(natural) + jax.nn.log_sigmoid(-natural)
        return jnp.reshape(np.sqrt(self.n).item() * jnp.exp(0.5 * log_variance), (1, 1))

    def log_prob(self, natural: Natural, y: Event) -> Float[Array, ""]:
        """y log p + (n - y) log(1 - p) + log(n choose y)."""
        value = as_float(y, natural.dtype)
        log_yes, log_no = jax.nn.log_sigmoid(natural[0]), jax.nn.log_sigmoid(-natural[0])
        return value * log_yes + (self.n - value) * log_no + self.log_base(value)

    def error(self, natural: Natural, y: Event) -> Natural:
        """y (1 - p) - (n - y) p, which is y - n p without its cancellation."""
        value = as_float(y, natural.dtype)
        return jnp.reshape(value, (1,)) * jax.nn.sigmoid(-natural) - (self.n - value) * jax.nn.sigmoid(natural)

    def in_domain(self, targets: np.ndarray) -> np.ndarray:
        """Whole numbers 0 .. n."""
        return are_counts(targets) & (targets <= self.n)


@dataclasses.dataclass(frozen=True, eq=False)
class Bernoulli(Binomial):
    """A yes (1) or no (0) of probability p = sigmoid(nu): the Binomial of one trial.

    >>> import jax.numpy as jnp
    >>> Bernoulli().score(jnp.array([0.0]), jnp.array(1)).tolist()
    [0.5]
    """

    support: ClassVar[Support] = "classes"

    n: int = dataclasses.field(default=1, init=False, repr=False)

    @property
    def domain(self) -> str:
        """0 and 1."""
        return "the two values 0 and 1"

    def log_base(self, y: Event) -> Float[Array, ""]:
        """Zero: the uniform measure on 0 and 1."""
        return jnp.zeros_like(as_float(y))

    def class_probabilities(self, mean: Natural) -> Float[Array, " 2"]:
        """Of 0 and of 1."""
        return jnp.concatenate([1 - mean, mean])

    def sample(self, key: Array, natural: Natural) -> Event:
        """Draw 0 or 1."""
        return jax.random.bernoulli(key, jax.nn.sigmoid(natural[0])).astype(int)
