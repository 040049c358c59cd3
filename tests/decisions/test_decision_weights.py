"""Members count by the squared error of their means: the one that misses the large rewards loses its weight."""

import jax.numpy as jnp
import numpy as np

from natkal.decisions import decision_weights
from natkal.engine.joint import JointLaw


def law(*means: float) -> JointLaw:
    mean = jnp.asarray(means)[:, None]
    return JointLaw(
        location=mean,
        cov=jnp.ones((len(means), 1, 1)),
        mean=mean,
        noise=jnp.full((len(means), 1), 1e-4),
        log_weights=jnp.log(jnp.full(len(means), 1 / len(means))),
    )


def test_large_errors_decide_and_not_the_fit_to_small_noise() -> None:
    weights = decision_weights.start((1, 1), jnp.float64)
    for row in range(400):
        large = row % 20 == 0
        # the first member has the common rewards to 0.01 and misses the large ones, the second has both to within 0.5
        told = law(1.01 if not large else 1.0, 1.5 if not large else 49.5)
        weights = decision_weights.after_reward(weights, told, jnp.asarray(50.0 if large else 1.0))
    assert np.exp(weights.log_weights)[1] > 0.95
    np.testing.assert_allclose(np.exp(weights.log_weights).sum(), 1.0, rtol=1e-12)


def test_a_missing_reward_says_nothing() -> None:
    before = decision_weights.after_reward(decision_weights.start((1, 1), jnp.float64), law(1.0, 2.0), jnp.asarray(1.0))
    after = decision_weights.after_reward(before, law(1.0, 2.0), jnp.asarray(jnp.nan))
    for new, old in zip(after, before, strict=True):
        np.testing.assert_array_equal(new, old)


def test_units_do_not_matter() -> None:
    found = []
    for unit in (1e-6, 1.0, 1e6):
        weights = decision_weights.start((1, 1), jnp.float64)
        for _ in range(10):
            weights = decision_weights.after_reward(weights, law(0.9 * unit, 0.5 * unit), jnp.asarray(1.0 * unit))
        found.append(np.asarray(weights.log_weights))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)
    np.testing.assert_allclose(found[2], found[1], rtol=1e-9)


def test_before_any_reward_small_members_count_most() -> None:
    np.testing.assert_allclose(np.exp(decision_weights.start((10, 30), jnp.float64).log_weights), [0.9, 0.1], rtol=1e-6)
