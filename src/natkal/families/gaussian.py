"""Gaussian observations: a known covariance (least squares), or a variance that is predicted too."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from natkal import linalg
from natkal.families.base import Event, Family, Natural, Observed, Raw, Support, as_float
from natkal.families.checks import is_concrete
from natkal.typing import Array, Bool, Float

LOG_2PI = float(np.log(2 * np.pi))


@dataclasses.dataclass(frozen=True, eq=False, init=False)
class Gaussian(Family):
    """`y ~ N(m, cov)` with known `cov`: a number for a real y, a (d, d) matrix for a vector.

    T(y) = y, nu = cov^-1 m, log Z = nu' cov nu / 2, base(y) = N(y; 0, cov). The raw output is the mean m, in which
    the score is cov^-1 (y - m) and the Fisher matrix cov^-1. With cov = L L', everything is a product with L or a
    triangular solve.

    >>> import jax.numpy as jnp
    >>> family = Gaussian(4.0)
    >>> family.natural(jnp.array([2.0])).tolist(), family.score(jnp.array([2.0]), jnp.array(4.0)).tolist()
    ([0.5], [0.5])
    """

    support: ClassVar[Support] = "real"

    noise_cov: ArrayLike

    def __init__(self, cov: ArrayLike):
        _check_cov(cov)
        object.__setattr__(self, "noise_cov", cov)

    def __repr__(self) -> str:
        return f"Gaussian(cov={self.noise_cov})" if self.event_shape == () else f"Gaussian(cov={self.dim}x{self.dim})"

    @property
    def dim(self) -> int:
        """1, or d."""
        return int(np.prod(self.event_shape))

    @property
    def event_shape(self) -> tuple[int, ...]:
        """() for a number `cov`, (d,) for a matrix."""
        return tuple(np.shape(self.noise_cov)[:1])

    @property
    def domain(self) -> str:
        """Any real y."""
        return "the finite real numbers" if self.event_shape == () else f"the vectors of {self.dim} finite real numbers"

    def sufficient_statistic(self, y: Event) -> Natural:
        """T(y) = y."""
        return jnp.reshape(as_float(y), (self.dim,))

    def log_partition(self, natural: Natural) -> Float[Array, ""]:
        """Log Z = nu' cov nu / 2 = |L' nu|^2 / 2."""
        lower = self._factor(natural.dtype).triangle()
        return 0.5 * jnp.sum(jnp.square(_product(lower.T, natural)))

    def log_base(self, y: Event) -> Float[Array, ""]:
        """Log N(y; 0, cov)."""
        return self._log_density(self.sufficient_statistic(y))

    def natural(self, mean: Natural) -> Natural:
        """nu = cov^-1 m, by two triangular solves."""
        factor = self._factor(mean.dtype)
        return factor.unwhiten(factor.whiten(mean))

    def sample(self, key: Array, natural: Natural) -> Event:
        """y = m + L z with z ~ N(0, I)."""
        noise = jax.random.normal(key, natural.shape, natural.dtype)
        return jnp.reshape(self.mean(natural) + _product(self.noise_root(natural), noise), self.event_shape)

    def mean(self, natural: Natural) -> Natural:
        """m = cov nu = L (L' nu): undoes the two solves of `natural` one by one, whatever the condition of cov."""
        lower = self._factor(natural.dtype).triangle()
        return _product(lower, _product(lower.T, natural))

    def cov(self, natural: Natural) -> Float[Array, "k k"]:
        """The constant `cov`."""
        return jnp.reshape(as_float(self.noise_cov, natural.dtype), (self.dim, self.dim))

    def noise_root(self, natural: Natural) -> Float[Array, "k k"]:
        """The Cholesky factor L of `cov`."""
        return self._factor(natural.dtype).triangle()

    def log_prob(self, natural: Natural, y: Event) -> Float[Array, ""]:
        """Log N(y; m, cov), from the whitened residual L^-1 (y - m)."""
        return self._log_density(self.error(natural, y))

    def link(self, raw: Raw) -> Natural:
        """The raw output is the mean."""
        return self.natural(raw)

    def score(self, raw: Raw, y: Event) -> Raw:
        """cov^-1 (y - m)."""
        return self.natural(as_float(self.sufficient_statistic(y), raw.dtype) - raw)

    def root(self, raw: Raw) -> Float[Array, "raw raw"]:
        """L^-T, a root of the Fisher matrix cov^-1."""
        return self._factor(raw.dtype).unwhiten(jnp.eye(self.dim, dtype=raw.dtype))

    def observe(self, raw: Raw, y: Event) -> Observed:
        """Exact for a vector with missing entries: N(m, cov) restricted to the entries that are there."""
        if self.event_shape == ():
            return super().observe(raw, y)
        value = as_float(y, raw.dtype)
        present = ~jnp.isnan(value)
        # Missing entries become independent and free of error: they then add nothing to score, root or log p.
        both = present[:, None] & present[None, :]
        marginal = Gaussian(jnp.where(both, self.cov(raw), jnp.eye(self.dim, dtype=raw.dtype)))
        residual = jnp.where(present, value - raw, 0.0)
        return Observed(
            score=marginal.natural(residual),
            root=jnp.where(present[:, None], marginal.root(raw), 0.0),
            log_prob=marginal._log_density(residual) + 0.5 * LOG_2PI * jnp.sum(~present),
            present=present,
        )

    def observe_natural(self, natural: Natural, y: Event) -> Observed:
        """`observe` at m = cov nu, by the chain rule with d m / d nu = cov."""
        observed = self.observe(self.mean(natural), y)
        cov = self.cov(natural)
        return Observed(
            score=_product(cov, observed.score),
            root=_product(cov, observed.root),
            log_prob=observed.log_prob,
            present=jnp.full(natural.shape, jnp.any(observed.present)),
        )

    def curved(self, raw: Raw) -> Bool[Array, " raw"]:
        """Nowhere: log p is quadratic in the mean."""
        return jnp.zeros(raw.shape, bool)

    def possible(self, targets: np.ndarray) -> np.ndarray:
        """Finite or missing, entry by entry."""
        return self.in_domain(np.where(np.isnan(targets), 0.0, targets))

    def _factor(self, dtype: DTypeLike) -> linalg.Factor:
        cov = as_float(self.noise_cov, dtype)
        return linalg.cholesky(cov if cov.ndim == 2 else jnp.reshape(cov, (1, 1)))

    def _log_density(self, residual: Float[Array, " k"]) -> Float[Array, ""]:
        factor = self._factor(residual.dtype)
        log_det = jnp.sum(jnp.log(factor.diagonal()))
        return -0.5 * jnp.sum(jnp.square(factor.whiten(residual))) - log_det - 0.5 * self.dim * LOG_2PI


@dataclasses.dataclass(frozen=True, eq=False)
class GaussianUnknownVariance(Family):
    """`y ~ N(m, v)`, both predicted: the raw output is (m, log v).

    T(y) = (y, y^2), nu = (m / v, -1 / 2v), log Z = m^2 / 2v + log(v) / 2. In raw coordinates the score is
    ((y - m) / v, ((y - m)^2 / v - 1) / 2) and the Fisher matrix diag(1 / v, 1 / 2).

    >>> import jax.numpy as jnp
    >>> GaussianUnknownVariance().score(jnp.array([1.0, 0.0]), jnp.array(3.0)).tolist()
    [2.0, 1.5]
    """

    support: ClassVar[Support] = "real"

    @property
    def dim(self) -> int:
        """Two: T(y) = (y, y^2)."""
        return 2

    def sufficient_statistic(self, y: Event) -> Natural:
        """T(y) = (y, y^2)."""
        value = as_float(y)
        return jnp.stack([value, jnp.square(value)])

    def log_partition(self, natural: Natural) -> Float[Array, ""]:
        """Log Z = m^2 / 2v + log(v) / 2."""
        return -jnp.square(natural[0]) / (4 * natural[1]) - 0.5 * jnp.log(-2 * natural[1])

    def log_base(self, y: Event) -> Float[Array, ""]:
        """-log(2 pi) / 2."""
        return jnp.full_like(as_float(y), -0.5 * LOG_2PI)

    def natural(self, mean: Natural) -> Natural:
        """nu = (m / v, -1 / 2v), with v = E[y^2] - m^2."""
        variance = mean[1] - jnp.square(mean[0])
        return jnp.stack([mean[0] / variance, -0.5 / variance])

    def sample(self, key: Array, natural: Natural) -> Event:
        """y = m + sqrt(v) z."""
        location, variance = self._location_variance(natural)
        return location + jnp.sqrt(variance) * jax.random.normal(key, (), natural.dtype)

    def mean(self, natural: Natural) -> Natural:
        """(m, m^2 + v)."""
        location, variance = self._location_variance(natural)
        return jnp.stack([location, jnp.square(location) + variance])

    def cov(self, natural: Natural) -> Float[Array, "k k"]:
        """[[v, 2mv], [2mv, 4 m^2 v + 2 v^2]]."""
        m, v = self._location_variance(natural)
        return jnp.stack([jnp.stack([v, 2 * m * v]), jnp.stack([2 * m * v, 4 * m * m * v + 2 * v * v])])

    def noise_root(self, natural: Natural) -> Float[Array, "k k"]:
        """[[s, 0], [2ms, sqrt(2) v]], with s = sqrt(v)."""
        m, v = self._location_variance(natural)
        s = jnp.sqrt(v)
        return jnp.stack([jnp.stack([s, jnp.zeros_like(s)]), jnp.stack([2 * m * s, np.sqrt(2.0).item() * v])])

    def log_prob(self, natural: Natural, y: Event) -> Float[Array, ""]:
        """-((y - m)^2 / v + log v + log 2 pi) / 2."""
        precision = -2 * natural[1]
        residual = as_float(y, natural.dtype) - natural[0] / precision
        return 0.5 * (jnp.log(precision) - precision * jnp.square(residual) - LOG_2PI)

    def error(self, natural: Natural, y: Event) -> Natural:
        """(y - m, (y - m)(y + m) - v)."""
        location, variance = self._location_variance(natural)
        value = as_float(y, natural.dtype)
        return jnp.stack([value - location, (value - location) * (value + location) - variance])

    def link(self, raw: Raw) -> Natural:
        """From (m, log v) to (m / v, -1 / 2v)."""
        precision = jnp.exp(-raw[1])
        return jnp.stack([raw[0] * precision, -0.5 * precision])

    def score(self, raw: Raw, y: Event) -> Raw:
        """((y - m) / v, ((y - m)^2 / v - 1) / 2)."""
        inverse_root = jnp.exp(-0.5 * raw[1])
        whitened = (as_float(y, raw.dtype) - raw[0]) * inverse_root
        return jnp.stack([whitened * inverse_root, 0.5 * (jnp.square(whitened) - 1)])

    def root(self, raw: Raw) -> Float[Array, "raw raw"]:
        """diag(1 / sqrt(v), 1 / sqrt(2))."""
        inverse_root = jnp.exp(-0.5 * raw[1])
        return jnp.diag(jnp.stack([inverse_root, jnp.full_like(inverse_root, np.sqrt(0.5))]))

    def curved(self, raw: Raw) -> Bool[Array, " raw"]:
        """In log v; log p is quadratic in m."""
        return jnp.array([False, True])

    def _location_variance(self, natural: Natural) -> tuple[Float[Array, ""], Float[Array, ""]]:
        variance = -0.5 / natural[1]
        return natural[0] * variance, variance


def _check_cov(cov: ArrayLike) -> None:
    shape = np.shape(cov)
    if len(shape) == 1:
        raise ValueError(f"cov: a vector is ambiguous, pass the (d, d) matrix jnp.diag(cov); got shape {shape}")
    if shape != () and (len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0):
        raise ValueError(f"cov: must be a number or a square matrix, got shape {shape}")
    if not is_concrete(cov):
        return
    matrix = np.atleast_2d(np.asarray(cov, dtype=np.float64))
    if not np.isfinite(matrix).all():
        raise ValueError(f"cov: must be finite, got {cov}")
    if not np.allclose(matrix, matrix.T, rtol=1e-5, atol=1e-6 * np.abs(matrix).max()):
        raise ValueError(f"cov: must be symmetric, got {cov}")
    smallest = np.linalg.eigvalsh(matrix)[0]
    if smallest <= 0:
        raise ValueError(f"cov: must be positive definite, its smallest eigenvalue is {smallest:.3g}; got {cov}")


def _product(left: Float[Array, "k k"], right: Float[Array, "k *m"]) -> Float[Array, "k *m"]:
    return jnp.matmul(left, right, precision="highest")
