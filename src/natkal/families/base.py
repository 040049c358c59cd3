"""What an observation is: the interface every exponential family answers (Appendix of the paper)."""

import abc
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from natkal import linalg
from natkal.typing import Array, Bool, Float, Num

Natural = Float[Array, " k"]
Raw = Float[Array, " raw"]
Event = Num[Array, "..."]
Support = Literal["real", "count", "positive", "classes", "other"]
"""The kinds of y that have a predictive law of their own; "other" has moments and no quantiles."""


class Observed(NamedTuple):
    """What one observation says about the raw output; where it is silent, score and root are zero."""

    score: Raw
    root: Float[Array, "raw r"]
    log_prob: Float[Array, ""]
    present: Bool[Array, " raw"]


class Family(abc.ABC):
    r"""An exponential family `p(y | nu) = exp(nu . T(y) - log Z(nu)) base(y)`, for one observation `y`.

    Every method takes one observation or one parameter vector; `jax.vmap` gives the batched ones.
    A family states `dim` (entries of T), `event_shape` (shape of y), `log_partition`, `sufficient_statistic`, `natural`
    and `sample`; mean, covariance and root then follow by differentiation, and are overridden where a closed form is
    faster or safer.

    Two sets of coordinates: `natural` (nu) is the paper's beta; `raw` is what a network may put out freely, and `link`
    maps raw to natural so that any real vector lies in the domain. `score` and `root` are the two things a
    filter needs of an observation, in raw coordinates: the gradient of log p and a root of the Fisher matrix.

    Results have the dtype of the parameter; an observation may be an integer or a float of any width.
    """

    support: ClassVar[Support] = "other"
    """Which kind of law stands for a prediction of y: what quantiles and intervals are taken from."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """How many entries T(y) and the natural parameter have."""

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one observation y."""
        return ()

    @property
    def domain(self) -> str:
        """The possible values of y, in words: completes "target 7 is outside ..."."""
        return "the finite real numbers"

    @property
    def unweighted(self) -> "Family":
        """The family of y itself, where observations come with a weight."""
        return self

    @property
    def raw_dim(self) -> int:
        """How many unconstrained outputs a model gives for this family."""
        return self.dim

    @property
    def raw_sizes(self) -> tuple[int, ...]:
        """Every number of outputs that `link` accepts."""
        return (self.raw_dim,)

    # -- the family itself ---------------------------------------------------------------------------------------

    @abc.abstractmethod
    def sufficient_statistic(self, y: Event) -> Natural:
        """T(y)."""

    @abc.abstractmethod
    def log_partition(self, natural: Natural) -> Float[Array, ""]:
        """Log Z(nu)."""

    @abc.abstractmethod
    def log_base(self, y: Event) -> Float[Array, ""]:
        """Log of the reference measure's density at y."""

    @abc.abstractmethod
    def natural(self, mean: Natural) -> Natural:
        """The natural parameter with this mean: the inverse of `mean`."""

    @abc.abstractmethod
    def sample(self, key: Array, natural: Natural) -> Event:
        """One draw y ~ p(. | nu)."""

    def mean(self, natural: Natural) -> Natural:
        """E[T(y)] = d log Z / d nu   (Appendix, first identities)."""
        return jax.grad(self.log_partition)(natural)

    def cov(self, natural: Natural) -> Float[Array, "k k"]:
        """Cov[T(y)] = d mean / d nu: the Fisher matrix of nu, and R of Def. 5."""
        return jax.hessian(self.log_partition)(natural)

    def noise_root(self, natural: Natural) -> Float[Array, "k r"]:
        """A matrix B with B B' = Cov[T(y)], without ever inverting the covariance."""
        return linalg.semidefinite(self.cov(natural)).triangle()

    def log_prob(self, natural: Natural, y: Event) -> Float[Array, ""]:
        """Log p(y | nu) = nu . T(y) - log Z(nu) + log base(y)."""
        statistic = as_float(self.sufficient_statistic(y), natural.dtype)
        return jnp.sum(natural * statistic) - self.log_partition(natural) + as_float(self.log_base(y), natural.dtype)

    def error(self, natural: Natural, y: Event) -> Natural:
        """T(y) - mean(nu) = d log p(y | nu) / d nu   (Appendix; overridden where the difference would cancel)."""
        return as_float(self.sufficient_statistic(y), natural.dtype) - self.mean(natural)

    def class_probabilities(self, mean: Natural) -> Float[Array, " classes"]:
        """The probabilities of all K classes, from the mean parameters; for families of classes."""
        raise ValueError(f"{self} has no classes")

    def check_link(self) -> None:  # noqa: B027
        """Refuse a link that leaves the domain of log Z; the links of natkal's own families never do."""

    # -- in the coordinates of a network's output ----------------------------------------------------------------

    def link(self, raw: Raw) -> Natural:
        """From unconstrained outputs to natural parameters; the identity where every real nu is allowed."""
        return raw

    def score(self, raw: Raw, y: Event) -> Raw:
        """d log p(y | link(raw)) / d raw = (d nu / d raw)' (T(y) - mean)."""
        natural, pullback = jax.vjp(self.link, raw)
        return pullback(self.error(natural, y))[0]

    def root(self, raw: Raw) -> Float[Array, "raw r"]:
        """C with C C' = the Fisher matrix of raw = (d nu / d raw)' Cov[T] (d nu / d raw)."""
        natural, pullback = jax.vjp(self.link, raw)
        return jax.vmap(lambda column: pullback(column)[0], in_axes=1, out_axes=1)(self.noise_root(natural))

    def observe(self, raw: Raw, y: Event) -> Observed:
        """Score, root and log p of the observed part of y: a NaN is a missing value, and says nothing."""
        known = ~jnp.any(jnp.isnan(as_float(y, raw.dtype)))
        return Observed(
            score=jnp.where(known, self.score(raw, y), 0.0),
            root=jnp.where(known, self.root(raw), 0.0),
            log_prob=jnp.where(known, self.log_prob(self.link(raw), y), 0.0),
            present=jnp.full(raw.shape, known),
        )

    def observe_natural(self, natural: Natural, y: Event) -> Observed:
        """`observe` in natural coordinates: the error and the noise root, if all of y is there."""
        known = ~jnp.any(jnp.isnan(as_float(y, natural.dtype)))
        return Observed(
            score=jnp.where(known, self.error(natural, y), 0.0),
            root=jnp.where(known, self.noise_root(natural), 0.0),
            log_prob=jnp.where(known, self.log_prob(natural, y), 0.0),
            present=jnp.full(natural.shape, known),
        )

    def curved(self, raw: Raw) -> Bool[Array, " raw"]:
        """The raw coordinates in which log p is not quadratic, so that a long step along them cannot be trusted."""
        return jnp.ones(raw.shape, bool)

    # -- what front ends ask before anything reaches the device ----------------------------------------------------

    def in_domain(self, targets: np.ndarray) -> np.ndarray:
        """For targets of shape (n, *event_shape), which of the n are possible values of y."""
        return np.all(np.isfinite(targets).reshape(len(targets), -1), axis=1)

    def possible(self, targets: np.ndarray) -> np.ndarray:
        """Which of the n targets may be learned from: those in the domain, and those with a missing value (NaN)."""
        return self.in_domain(targets) | np.any(np.isnan(targets).reshape(len(targets), -1), axis=1)

    def check_targets(self, targets: np.ndarray, first_row: int = 0) -> None:
        """Raise a `ValueError` that names the first target this family cannot produce."""
        targets = np.asarray(targets)
        if targets.ndim == 0 or targets.shape[1:] != self.event_shape:
            expected = ", ".join(["n", *map(str, self.event_shape)])
            raise ValueError(f"targets: {self} needs an array of shape ({expected}), got {targets.shape}")
        if not (jnp.issubdtype(targets.dtype, jnp.number) or targets.dtype == bool):
            raise ValueError(f"targets: {self} needs numbers, got dtype {targets.dtype}")
        good = self.possible(targets)
        if not good.all():
            row = int(np.argmin(good))
            raise ValueError(f"target {targets[row]} is outside {self.domain} of {self} (row {first_row + row})")


def as_float(values: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """`values` in this float dtype; without one, floats keep theirs and integers take JAX's default."""
    array = jnp.asarray(values)
    if dtype is None:
        dtype = array.dtype if jnp.issubdtype(array.dtype, jnp.floating) else jnp.result_type(float)
    return array.astype(dtype)
