"""Many models of one kind as a population: a Gaussian prior that they share, learned from their posteriors.

theta_k ~ N(mu, T) for every model k. What model k knows is N(m_k, P_k), which started from that prior. The two are
learned in turn (ECME, Liu and Rubin 1994), from sums over the models alone:

    T^-1 (n T - sum P_k) T^-1 (mu' - mu) = T^-1 sum (m_k - mu)          mu of largest likelihood, given T
    T' = sum (P_k + (m_k - mu)(m_k - mu)') / n                          one round of expectation-maximisation, given mu

The prior that everything began with counts as one more model, so that T is not learned from one model alone and never
collapses. A posterior then moves to the new prior, and gets back the share 1 - c of the prior that forgetting took:

    P'^-1 = P^-1 + T'^-1 - c T^-1,      P'^-1 m' = P^-1 m + T'^-1 mu' - c T^-1 mu

which is exact where the posterior is the prior times a Gaussian likelihood. NumPy in float64: this is done rarely, and
on the host.
"""

from typing import NamedTuple

import numpy as np

CHUNK_NUMBERS = 1 << 22
"""Numbers of the matrices that are inverted at once, which bounds the memory."""
ROUNDS = 4
"""Rounds at a time: each is one step of the mean and one of the spread."""


class Population(NamedTuple):
    """The prior of every model: mean mu (p,) and covariance T (p, p)."""

    mean: np.ndarray
    cov: np.ndarray


class Sums(NamedTuple):
    """How many models, and the sums of m_k - mu, of P_k and of (m_k - mu)(m_k - mu)', around a mean mu.

    Sums of several parts of a population, around one mean, are added entry by entry.
    """

    models: float
    deviations: np.ndarray
    covs: np.ndarray
    products: np.ndarray


def sums(population: Population, means: np.ndarray, covs: np.ndarray) -> Sums:
    """The sums of some models (n, p) and (n, p, p), around the mean of the present population."""
    away = np.asarray(means, float) - population.mean
    total = np.zeros_like(population.cov)
    for part in _parts(len(means), population.mean.size):
        total += np.asarray(covs[part], float).sum(axis=0)
    return Sums(float(len(means)), away.sum(axis=0), total, away.T @ away)


def added(one: Sums, other: Sums) -> Sums:
    """The sums of two parts of a population."""
    return Sums(
        one.models + other.models,
        one.deviations + other.deviations,
        one.covs + other.covs,
        one.products + other.products,
    )


def with_mean(population: Population, first: Population, found: Sums) -> Population:
    """The mean of largest posterior probability, given T; before any model it is N(mu_0, T_0), that is `first`."""
    precision, prior = np.linalg.inv(population.cov), np.linalg.inv(first.cov)
    known = precision @ (found.models * population.cov - found.covs) @ precision + prior
    pull = precision @ found.deviations + prior @ (first.mean - population.mean)
    return Population(mean=population.mean + np.linalg.solve((known + known.T) / 2, pull), cov=population.cov)


def with_spread(population: Population, first: Population, found: Sums, noise: float = 1.0) -> Population:
    """T of largest expected likelihood, given mu, `first` counting as one more model.

    `noise` is the noise variance, where covariances are in units of it.
    """
    together = added(found, sums(population, first.mean[None], first.cov[None]))
    cov = (together.covs + together.products / noise) / together.models
    return Population(mean=population.mean, cov=(cov + cov.T) / 2)


def rebased(
    old: Population, new: Population, means: np.ndarray, covs: np.ndarray, share: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Posteriors (n, p), (n, p, p) that hold a share (n,) of the old prior, as they are from the new prior."""
    before, after = np.linalg.inv(old.cov), np.linalg.inv(new.cov)
    moved_means, moved_covs = np.empty(means.shape), np.empty(covs.shape)
    for part in _parts(len(means), old.mean.size):
        kept = np.asarray(share[part], float)[:, None]
        own = np.asarray(means[part], float)
        precision = np.linalg.inv(np.asarray(covs[part], float)) + after - kept[:, :, None] * before
        cov = np.linalg.inv(precision)
        moved_covs[part] = (cov + cov.transpose(0, 2, 1)) / 2
        # from m itself: P'^-1 (m' - m) = T'^-1 (mu' - m) - c T^-1 (mu - m), in which nothing large cancels
        pull = (new.mean - own) @ after - kept * ((old.mean - own) @ before)
        moved_means[part] = own + np.einsum("nij,nj->ni", moved_covs[part], pull)
    return moved_means, moved_covs


def learned(
    population: Population,
    first: Population,
    means: np.ndarray,
    covs: np.ndarray,
    share: np.ndarray,
    noise: float = 1.0,
    rounds: int = ROUNDS,
) -> tuple[Population, np.ndarray, np.ndarray]:
    """The population after some rounds, and the posteriors under it; a pure function of the posteriors before."""
    # what forgetting took of the prior is given back first, so that no posterior is wider than the prior
    means, covs = rebased(population, population, means, covs, share)
    whole = np.ones(len(means))
    for _ in range(rounds):
        centred = with_mean(population, first, sums(population, means, covs))
        means, covs = rebased(population, centred, means, covs, whole)
        spread = with_spread(centred, first, sums(centred, means, covs), noise)
        means, covs = rebased(centred, spread, means, covs, whole)
        population = spread
    return population, means, covs


def _parts(count: int, size: int) -> list[slice]:
    step = max(CHUNK_NUMBERS // max(size * size, 1), 1)
    return [slice(first, min(first + step, count)) for first in range(0, count, step)]
