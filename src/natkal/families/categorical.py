"""One of k classes, and how often each came up in n draws: the softmax, at any logit gap."""

import abc
import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.typing import DTypeLike

from natkal.families.base import Event, Family, Natural, Raw, Support, as_float
from natkal.families.checks import are_counts, check_whole
from natkal.typing import Array, Float


class Softmax(Family):
    """Counts c over k classes with probabilities p = softmax: what `Categorical` (one draw) and `Multinomial` share.

    T(y) = the first k - 1 counts, nu_i = log p_i / p_k: the last class is the reference, as in the paper. With
    `minimal=False`, T(y) = all k counts and nu = k logits, of which a common shift means nothing. Every function of a
    parameter takes either form, told apart by its length, and answers in as many entries.

    Nothing is computed as 1 - p_i where p_i may be near 1: that is the sum of the others.
    """

    n: int
    k: int
    minimal: bool

    @property
    def dim(self) -> int:
        """k - 1 log-odds, or k logits."""
        return self.k - 1 if self.minimal else self.k

    @property
    def raw_sizes(self) -> tuple[int, ...]:
        """K - 1 log-odds, or k logits."""
        return (self.k - 1, self.k)

    @abc.abstractmethod
    def counts(self, y: Event, dtype: DTypeLike | None = None) -> Float[Array, " k"]:
        """The observation as k counts that sum to n."""

    def sufficient_statistic(self, y: Event) -> Natural:
        """The first `dim` counts."""
        return self.counts(y)[: self.dim]

    def log_partition(self, natural: Natural) -> Float[Array, ""]:
        """n log sum exp of the k logits."""
        return self.n * jax.nn.logsumexp(self._logits(natural))

    def natural(self, mean: Natural) -> Natural:
        """Log m_i - log m_k, or the k logarithms."""
        if mean.shape == (self.k,):
            return jnp.log(mean)
        return jnp.log(mean) - jnp.log(self.n - jnp.sum(mean))

    def mean(self, natural: Natural) -> Natural:
        """n p."""
        return self.n * jax.nn.softmax(self._logits(natural))[: natural.size]

    def cov(self, natural: Natural) -> Float[Array, "k k"]:
        """n (diag p - p p')."""
        size = natural.size
        probs = jax.nn.softmax(self._logits(natural))
        off_diagonal = -probs[:size, None] * probs[None, :size]
        on_diagonal = (probs * complement(probs))[:size]
        return self.n * jnp.where(jnp.eye(size, dtype=bool), on_diagonal[:, None], off_diagonal)

    def noise_root(self, natural: Natural) -> Float[Array, "k r"]:
        """sqrt(n) diag(sqrt p)(I - sqrt p sqrt p'): k columns, one row per entry asked for."""
        size = natural.size
        logits = self._logits(natural)
        probs, root_probs = jax.nn.softmax(logits), jnp.exp(0.5 * jax.nn.log_softmax(logits))
        off_diagonal = -probs[:size, None] * root_probs[None, :]
        on_diagonal = (root_probs * complement(probs))[:size]
        root = jnp.where(jnp.eye(size, self.k, dtype=bool), on_diagonal[:, None], off_diagonal)
        return np.sqrt(self.n).item() * root

    def log_prob(self, natural: Natural, y: Event) -> Float[Array, ""]:
        """Counts . log p + log base(y)."""
        log_probs = jax.nn.log_softmax(self._logits(natural))
        return jnp.sum(self.counts(y, natural.dtype) * log_probs) + as_float(self.log_base(y), natural.dtype)

    def error(self, natural: Natural, y: Event) -> Natural:
        """c_i (1 - p_i) - (n - c_i) p_i, which is c - n p without its cancellation."""
        probs = jax.nn.softmax(self._logits(natural))
        counts = self.counts(y, natural.dtype)
        return (counts * complement(probs) - (self.n - counts) * probs)[: natural.size]

    def link(self, raw: Raw) -> Natural:
        """k - 1 log-odds or k logits, into the form of `minimal`."""
        logits = self._logits(raw)
        if raw.size == self.dim:
            return raw
        return logits[:-1] - logits[-1] if self.minimal else logits

    def score(self, raw: Raw, y: Event) -> Raw:
        """The error, in as many entries as raw: link' (c - n p)_{1..k-1} has last entry c_k - n p_k."""
        return self.error(raw, y)

    def root(self, raw: Raw) -> Float[Array, "raw r"]:
        """The noise root, in as many rows as raw: the rows of the k-logit root sum to zero, as link' asks."""
        return self.noise_root(raw)

    def _logits(self, natural: Natural) -> Float[Array, " logits"]:
        if natural.shape == (self.k,):
            return natural
        if natural.shape == (self.k - 1,):
            return jnp.append(natural, jnp.zeros((), natural.dtype))
        raise ValueError(f"{self} takes {self.k - 1} log-odds or {self.k} logits, got shape {natural.shape}")


@dataclasses.dataclass(frozen=True, eq=False)
class Categorical(Softmax):
    """A label y in 0 .. k-1, with probabilities p = softmax.

    The raw output is k - 1 log-odds against the last class, or k logits: whichever the network gives.

    >>> import jax.numpy as jnp
    >>> family = Categorical(3)
    >>> family.link(jnp.array([1.0, 2.0, 4.0])).tolist()
    [-3.0, -2.0]
    >>> Categorical(4).score(jnp.zeros(4), jnp.array(2)).tolist()
    [-0.25, -0.25, 0.75, -0.25]
    """

    support: ClassVar[Support] = "classes"

    k: int
    minimal: bool = dataclasses.field(default=True, kw_only=True)
    n: int = dataclasses.field(default=1, init=False, repr=False)

    def __post_init__(self) -> None:
        check_whole("k", self.k, least=2)

    @property
    def domain(self) -> str:
        """0 .. k-1."""
        return f"the {self.k} classes 0..{self.k - 1}"

    def counts(self, y: Event, dtype: DTypeLike | None = None) -> Float[Array, " k"]:
        """One-hot; all zeros for a label that is no class, a missing one (NaN) for instance."""
        return (jnp.asarray(y) == jnp.arange(self.k)).astype(dtype or as_float(y).dtype)

    def log_base(self, y: Event) -> Float[Array, ""]:
        """Zero: the uniform measure on the classes."""
        return jnp.zeros_like(as_float(y))

    def class_probabilities(self, mean: Natural) -> Float[Array, " classes"]:
        """The mean itself; of a minimal family with the last class, whose probability is what is left."""
        if mean.size == self.k:
            return mean
        return jnp.append(mean, jnp.maximum(1 - jnp.sum(mean), 0.0))

    def sample(self, key: Array, natural: Natural) -> Event:
        """Draw a label."""
        return jax.random.categorical(key, self._logits(natural)).astype(int)

    def in_domain(self, targets: np.ndarray) -> np.ndarray:
        """Whole numbers 0 .. k-1."""
        return are_counts(targets) & (targets < self.k)


@dataclasses.dataclass(frozen=True, eq=False)
class Multinomial(Softmax):
    """How often each of `k` classes came up in `n` draws: y is k counts that sum to n.

    >>> import jax.numpy as jnp
    >>> Multinomial(10, 2).mean(jnp.array([0.0])).tolist()
    [5.0]
    """

    n: int
    k: int
    minimal: bool = dataclasses.field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        check_whole("n", self.n, least=1)
        check_whole("k", self.k, least=2)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """K counts."""
        return (self.k,)

    @property
    def domain(self) -> str:
        """K counts that sum to n."""
        return f"the lists of {self.k} counts that sum to {self.n}"

    def counts(self, y: Event, dtype: DTypeLike | None = None) -> Float[Array, " k"]:
        """The counts themselves."""
        return as_float(y, dtype)

    def log_base(self, y: Event) -> Float[Array, ""]:
        """Log n! / (c_1! ... c_k!)."""
        counts = as_float(y)
        return gammaln(jnp.full((), self.n + 1, counts.dtype)) - jnp.sum(gammaln(counts + 1))

    def sample(self, key: Array, natural: Natural) -> Event:
        """Draw n labels, by inverting the distribution function, and count them."""
        below = jnp.cumsum(jax.nn.softmax(self._logits(natural)))[:-1]
        labels = jnp.searchsorted(below, jax.random.uniform(key, (self.n,), natural.dtype), side="right")
        return jnp.bincount(labels, length=self.k).astype(int)

    def in_domain(self, targets: np.ndarray) -> np.ndarray:
        """Whole numbers, at least 0, that sum to n."""
        return are_counts(targets).all(axis=1) & (np.asarray(targets, np.float64).sum(axis=1) == self.n)


def complement(probs: Float[Array, " k"]) -> Float[Array, " k"]:
    """1 - p_i, right relative to its own size: where p_i is the largest, and may be near 1, the sum of the others."""
    largest = jnp.arange(probs.size) == jnp.argmax(probs)
    return jnp.where(largest, jnp.sum(jnp.where(largest, 0.0, probs)), 1 - probs)
