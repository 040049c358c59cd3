"""The prior that models share: against the marginal likelihood, which NumPy computes from the rows themselves."""

import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.banks.population import Population, learned, rebased, sums, with_mean, with_spread

pytestmark = pytest.mark.float64
SIZE, KEYS = 3, 40


def rows(seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Linear regressions with unit noise whose weights are N(mu, T), a few rows each."""
    rng = np.random.default_rng(seed)
    centre, root = np.array([1.0, -2.0, 0.5]), np.diag([1.0, 0.3, 0.1])
    made = []
    for _ in range(KEYS):
        inputs = rng.normal(size=(int(rng.integers(1, 7)), SIZE))
        weights = centre + root @ rng.normal(size=SIZE)
        made.append((inputs, inputs @ weights + rng.normal(size=len(inputs))))
    return made


def posteriors(population: Population, data: list) -> tuple[np.ndarray, np.ndarray]:
    """Normal equations."""
    means, covs = [], []
    for inputs, targets in data:
        cov = np.linalg.inv(np.linalg.inv(population.cov) + inputs.T @ inputs)
        covs.append(cov)
        means.append(cov @ (inputs.T @ targets + np.linalg.solve(population.cov, population.mean)))
    return np.stack(means), np.stack(covs)


def log_likelihood(population: Population, data: list) -> float:
    """Of all rows, the weights integrated out."""
    total = 0.0
    for inputs, targets in data:
        cov = np.eye(len(targets)) + inputs @ population.cov @ inputs.T
        away = targets - inputs @ population.mean
        total -= (np.linalg.slogdet(2 * np.pi * cov)[1] + away @ np.linalg.solve(cov, away)) / 2
    return total


def test_a_posterior_moves_to_another_prior_exactly() -> None:
    data = rows()
    old, new = Population(np.zeros(SIZE), 2 * np.eye(SIZE)), Population(np.ones(SIZE), np.diag([0.5, 3.0, 0.01]))
    moved = rebased(old, new, *posteriors(old, data), np.ones(KEYS))
    for found, wanted in zip(moved, posteriors(new, data), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_what_forgetting_took_of_the_prior_is_given_back() -> None:
    population = Population(np.ones(SIZE), np.diag([0.5, 3.0, 0.1]))
    means, covs = posteriors(Population(population.mean, population.cov / 0.2), rows())
    given = rebased(population, population, means, covs, np.full(KEYS, 0.2))
    for found, wanted in zip(given, posteriors(population, rows()), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_each_step_is_the_one_it_claims_to_be() -> None:
    data, first = rows(), Population(np.zeros(SIZE), 1e12 * np.eye(SIZE))
    population = Population(np.array([0.5, 0.5, 0.5]), np.diag([0.7, 0.2, 0.1]))
    means, covs = posteriors(population, data)
    centred = with_mean(population, first, sums(population, means, covs))
    # generalised least squares: theta-hat_k ~ N(mu, T + (U'U)^-1), as equations for mu
    left, right = np.zeros((SIZE, SIZE)), np.zeros(SIZE)
    for inputs, targets in data:
        weight = np.linalg.inv(np.eye(len(targets)) + inputs @ population.cov @ inputs.T)
        left += inputs.T @ weight @ inputs
        right += inputs.T @ weight @ targets
    np.testing.assert_allclose(centred.mean, np.linalg.solve(left, right), rtol=1e-6)
    spread = with_spread(centred, centred, sums(centred, means, covs))
    away = means - centred.mean
    wanted = (covs.sum(axis=0) + away.T @ away + centred.cov) / (KEYS + 1)
    np.testing.assert_allclose(spread.cov, wanted, rtol=1e-12)


def test_rounds_climb_to_the_prior_of_largest_likelihood() -> None:
    data, first = rows(), Population(np.zeros(SIZE), 4 * np.eye(SIZE))
    population, heights = first, [log_likelihood(first, data)]
    means, covs = posteriors(first, data)
    for _ in range(30):
        population, means, covs = learned(population, first, means, covs, np.ones(KEYS), rounds=1)
        heights.append(log_likelihood(population, data))
    assert np.all(np.diff(heights[:8]) > 0)
    assert heights[-1] > heights[0] + 10
    for found, wanted in zip((means, covs), posteriors(population, data), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-10)


def test_a_fleet_is_pooled_as_its_posteriors_are() -> None:
    data, keep = rows(), 0.99
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(SIZE), nk.families.Gaussian(1.0))
    fleet = nk.fleet(
        nk.online(model, prior_cov=4.0, rates=nk.fading(1 - keep), step_control=nk.step_control(cap=None)), KEYS
    )
    first = Population(np.zeros(SIZE), 4 * np.eye(SIZE))
    keys = np.repeat(np.arange(KEYS), [len(targets) for _, targets in data])
    inputs, targets = np.concatenate([u for u, _ in data]), np.concatenate([y for _, y in data])
    state, _ = fleet.update(fleet.init(), keys, inputs, targets)
    half = fleet.pool(state)
    again = fleet.pool(half)
    faded = [
        (u * keep ** (np.arange(len(y))[::-1, None] / 2), y * keep ** (np.arange(len(y))[::-1] / 2)) for u, y in data
    ]
    population, means, covs = learned(first, first, *posteriors(first, faded), np.ones(KEYS))
    np.testing.assert_allclose(half.start.params, population.mean, rtol=1e-8)
    np.testing.assert_allclose(half.members.params, means, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(fleet.inner.covariance(half.start), population.cov, rtol=1e-8, atol=1e-12)
    population, means, covs = learned(population, first, means, covs, np.ones(KEYS))
    np.testing.assert_allclose(again.start.params, population.mean, rtol=1e-8)
    grown, _ = fleet.update(again, [KEYS + 3], inputs[:1], np.full(1, np.nan))
    np.testing.assert_allclose(fleet.member(grown, KEYS + 3).params, population.mean, rtol=1e-8)
