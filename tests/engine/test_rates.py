"""Schedules that round, overshoot or have no value at 0 do not stop a learner."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk

MODEL = nk.static_model(lambda w, u: w @ u, jnp.zeros(2), nk.families.Gaussian(1.0))
COUNTS = jnp.arange(1, 3001)


def keeps(rates, *, prior_kept: bool, dtype: str = "float32") -> np.ndarray:
    return np.asarray(jax.vmap(lambda t: rates.at(t, prior_kept=prior_kept).keep)(COUNTS.astype(dtype)), float)


def test_fading_that_rounds_below_zero_is_no_fading() -> None:
    """1/(t+1) never forgets; in float32 eta_{t-1}/eta_t - eta_{t-1} is 1 up to a few roundings, above 1 as well."""
    never = nk.learning_rate(lambda t: 1 / (t + 1))
    free, kept = keeps(never, prior_kept=False), keeps(never, prior_kept=True)
    assert free.max() > 1  # it does round so
    np.testing.assert_allclose(free, 1, atol=1e-6)
    assert kept[1:].max() == 1
    np.testing.assert_allclose(kept[1:], 1, atol=1e-6)
    assert keeps(nk.fading(lambda t: jnp.sin(1e-3 * t) * 1e-3), prior_kept=False).max() <= 1


def test_a_rate_that_falls_faster_than_one_over_t_keeps_its_growth_unless_a_prior_is_kept() -> None:
    """Prop. 3 for eta_t = 1/(t+1)^2: 1 - lambda_t = (t+2)/t > 1, exactly as without the rule."""
    fast = nk.learning_rate(lambda t: 1 / (t + 1) ** 2)
    t = np.arange(1, 3001)
    np.testing.assert_allclose(keeps(fast, prior_kept=False), (t + 2) / t, rtol=1e-5)
    assert keeps(fast, prior_kept=True).max() == 1


@pytest.mark.parametrize(
    ("rates", "prior_weight"),
    [
        (nk.learning_rate(lambda t: 1 / (t + 1)), 2.0),
        (nk.learning_rate(lambda t: 1 / (t + 1) ** 2), 2.0),
        (nk.learning_rate(lambda t: 1 / t), 2.0),
        (nk.learning_rate(lambda t: 1 / t), None),
        (nk.learning_rate(lambda t: jnp.where(t == 7, 1.5, 0.1)), None),
        (nk.learning_rate(0.1, fisher_decay=lambda t: jnp.where(t == 7, 1.5, 0.1)), None),
        (nk.fading(lambda t: jnp.where(t == 7, 1.5, -1e-7)), None),
    ],
    ids=["1/(t+1) kept", "1/(t+1)^2 kept", "1/t kept", "1/t", "above 1", "decay above 1", "fading outside"],
)
def test_every_step_is_taken(rates, prior_weight) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(300, 2)).astype("float32")
    targets = (inputs @ [1.0, -2.0] + 0.1 * rng.normal(size=300)).astype("float32")
    start = jnp.zeros(2, jnp.float32)
    learner = nk.online(MODEL, prior_cov=1.0, rates=rates, prior_weight=prior_weight)
    state, info = nk.run(learner, learner.init(start), inputs, targets)
    assert info.accepted.all()
    assert int(state.steps) == 300
    np.testing.assert_allclose(state.params, [1.0, -2.0], atol=0.2)
