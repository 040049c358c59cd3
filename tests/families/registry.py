"""Every family, once: a new one enters this list and inherits the checks of `test_registry.py`.

`naturals` are ordinary parameter values, `extreme` ones at which means saturate or variances vanish. `reference` is
scipy's log density at (nu, y). `support` lists all events of a small discrete family. `impossible` are targets, one row
each, that `check_targets` must refuse.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import scipy.stats

from natkal.families import (
    Bernoulli,
    Binomial,
    Categorical,
    Exponential,
    Family,
    Gamma,
    Gaussian,
    GaussianUnknownVariance,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Product,
    from_log_partition,
    in_natural_coordinates,
)


class Case(NamedTuple):
    family: Family
    naturals: list
    extreme: list
    impossible: list
    reference: Callable[[np.ndarray, np.ndarray], float]
    support: np.ndarray | None = None


COV = np.array([[2.0, 0.6], [0.6, 0.5]])
SIGMOID = scipy.special.expit
INF = float("inf")


def probs(nu: np.ndarray) -> np.ndarray:
    """Class probabilities of k - 1 log-odds."""
    return scipy.special.softmax(np.append(nu, 0.0))


def gaussian(nu, y):
    return scipy.stats.multivariate_normal(COV @ nu, COV).logpdf(y)


def gaussian_unknown_variance(nu, y):
    variance = -0.5 / nu[1]
    return scipy.stats.norm(nu[0] * variance, np.sqrt(variance)).logpdf(y)


def negative_binomial(nu, y):
    return scipy.stats.nbinom(2.5, -np.expm1(nu[0])).logpmf(y)


def product(nu, y):
    return (
        scipy.stats.bernoulli(SIGMOID(nu[0])).logpmf(int(y[0]))
        + gaussian(nu[1:3], y[1:3])
        + np.log(probs(nu[3:5])[int(y[3])])
        + scipy.stats.expon(scale=-1 / nu[5]).logpdf(y[4])
    )


def custom_geometric() -> Family:
    """How many failures before a success, as a user would state it: nu = log of the probability of failure."""
    return from_log_partition(
        lambda nu: -jnp.log(-jnp.expm1(nu[0])),
        lambda y: y[None],
        dim=1,
        link=lambda raw: -jax.nn.softplus(-raw),
        sample=lambda key, nu: jnp.floor(jnp.log(jax.random.uniform(key, (), nu.dtype, 1e-30)) / nu[0]),
        in_domain=lambda targets: targets >= 0,
        domain="the numbers from 0 on",
        initial_natural=-np.ones(1),
        name="Geometric()",
    )


def custom_gaussian() -> Family:
    """Two natural parameters, of which the second must be negative."""
    return from_log_partition(
        lambda nu: -jnp.square(nu[0]) / (4 * nu[1]) - 0.5 * jnp.log(-2 * nu[1]),
        lambda y: jnp.stack([y, jnp.square(y)]),
        dim=2,
        log_base=lambda y: jnp.full_like(y, -0.5 * np.log(2 * np.pi)),
        link=lambda raw: jnp.stack([raw[0], -0.1 - jax.nn.softplus(raw[1])]),
        sample=GaussianUnknownVariance().sample,
        initial_natural=np.array([0.0, -0.5]),
    )


def simplex(n: int, k: int) -> np.ndarray:
    """All lists of k counts that sum to n."""
    grid = np.stack(np.meshgrid(*[np.arange(n + 1)] * k), axis=-1).reshape(-1, k)
    return grid[grid.sum(axis=1) == n]


CASES = {
    "gaussian": Case(
        Gaussian(2.0), [[0.3], [-1.5]], [[300.0]], [INF, -INF],
        lambda nu, y: scipy.stats.norm(2 * nu[0], np.sqrt(2)).logpdf(y),
    ),
    "gaussian-matrix": Case(Gaussian(COV), [[0.3, -1.0], [2.0, 1.0]], [[50.0, -80.0]], [[0.0, INF]], gaussian),
    "gaussian-unknown-variance": Case(
        GaussianUnknownVariance(), [[0.3, -0.5], [-4.0, -2.0]], [[3.0, -50.0], [1e-4, -1e-4]], [INF],
        gaussian_unknown_variance,
    ),
    "bernoulli": Case(
        Bernoulli(), [[0.3], [-1.5]], [[30.0], [-80.0]], [2, -1, 0.5, INF],
        lambda nu, y: scipy.special.log_expit(nu[0] if y else -nu[0]), np.arange(2),
    ),
    "binomial": Case(
        Binomial(7), [[0.3], [-1.5]], [[30.0], [-80.0]], [8, -1, 0.5, INF],
        lambda nu, y: np.log(scipy.special.comb(7, y))
        + y * scipy.special.log_expit(nu[0]) + (7 - y) * scipy.special.log_expit(-nu[0]), np.arange(8),
    ),
    "categorical": Case(
        Categorical(3), [[0.3, -1.0], [-1.5, 0.5]], [[30.0, 0.0], [-40.0, 40.0], [-80.0, -80.0]], [3, -1, 1.5, INF],
        lambda nu, y: scipy.special.log_softmax(np.append(nu, 0.0))[int(y)], np.arange(3),
    ),
    "categorical-logits": Case(
        Categorical(3, minimal=False), [[0.3, -1.0, 0.4], [1.5, 0.5, -0.3]], [[30.0, 0.0, -50.0]], [3, -1],
        lambda nu, y: scipy.special.log_softmax(nu)[int(y)], np.arange(3),
    ),
    "multinomial": Case(
        Multinomial(5, 3), [[0.3, -1.0], [-1.5, 0.5]], [[30.0, 0.0], [-40.0, 40.0]], [[5, 1, 0], [6, -1, 0]],
        lambda nu, y: scipy.stats.multinomial(5, probs(nu)).logpmf(y), simplex(5, 3),
    ),
    "multinomial-logits": Case(
        Multinomial(5, 3, minimal=False), [[0.3, -1.0, 0.4], [1.5, 0.5, -0.3]], [[30.0, 0.0, -50.0]], [[5, 0.5, -0.5]],
        lambda nu, y: scipy.stats.multinomial(5, scipy.special.softmax(nu)).logpmf(y), simplex(5, 3),
    ),
    "poisson": Case(
        Poisson(), [[0.3], [2.5]], [[-60.0], [9.0]], [-1, 0.5, INF],
        lambda nu, y: scipy.stats.poisson(np.exp(nu[0])).logpmf(y),
    ),
    "negative-binomial": Case(
        NegativeBinomial(2.5), [[-0.3], [-2.5]], [[-60.0], [-1e-3]], [-1, 0.5, INF], negative_binomial,
    ),
    "exponential": Case(
        Exponential(), [[-0.3], [-2.5]], [[-1e8], [-1e-8]], [-1.0, INF],
        lambda nu, y: scipy.stats.expon(scale=-1 / nu[0]).logpdf(y),
    ),
    "gamma": Case(
        Gamma(3.5), [[-0.3], [-2.5]], [[-1e8], [-1e-8]], [-1.0, 0.0, INF],
        lambda nu, y: scipy.stats.gamma(3.5, scale=-1 / nu[0]).logpdf(y),
    ),
    "product": Case(
        Product(Bernoulli(), Gaussian(COV), Categorical(3), Exponential()),
        [[0.3, 1.0, -0.5, 0.3, -1.0, -0.7], [-1.5, 0.2, 2.0, -1.5, 0.5, -2.0]], [[30.0, 10.0, -20.0, -30.0, 0.0, -1e4]],
        [[2, 0.0, 0.0, 1, 1.0], [1, INF, 0.0, 1, 1.0], [1, 0.0, 0.0, 3, 1.0], [1, 0.0, 0.0, 1, -1.0]],
        product,
    ),
    "natural-coordinates": Case(
        in_natural_coordinates(Gamma(3.5)), [[-0.3], [-2.5]], [[-1e8], [-1e-8]], [-1.0, 0.0],
        lambda nu, y: scipy.stats.gamma(3.5, scale=-1 / nu[0]).logpdf(y),
    ),
    "custom-geometric": Case(
        custom_geometric(), [[-0.3], [-2.5]], [[-20.0], [-1e-2]], [-1, INF],
        lambda nu, y: scipy.stats.geom(-np.expm1(nu[0]), loc=-1).logpmf(y),
    ),
    "custom-gaussian": Case(
        custom_gaussian(), [[0.3, -0.5], [-4.0, -2.0]], [], [INF], gaussian_unknown_variance,
    ),
}  # fmt: skip
