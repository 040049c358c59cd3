"""Several steps ahead of a bank: paths and closed forms against linear Gaussian theory and against each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import natkal as nk
from natkal.banks import paths
from natkal.banks.bank import Bank
from natkal.laws import Student

A, LAST, NOISE = 0.8, 2.0, 0.5
HORIZON = 48


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def autoregression(coefficient: float, prior: float):
    model = nk.static_model(lambda a, u: a * u, jnp.array(coefficient), nk.families.Gaussian(NOISE))
    return nk.online(model, prior_cov=prior)


def fed_back(last: float) -> paths.Inputs:
    """The input of each step is the target before it."""
    return paths.Inputs(lambda key: jnp.array(last), lambda memory, step: memory, lambda memory, step, y: y)


def known(rows: np.ndarray) -> paths.Inputs:
    """Inputs that do not depend on the targets."""
    return paths.Inputs(lambda key: (), lambda memory, step: jnp.asarray(rows)[step], lambda memory, step, y: memory)


def drawn(bank, state, inputs, horizon, rounds=128, seed=0):
    draw = jax.jit(lambda state, key: paths.draw_paths(bank, state, key, inputs, horizon, None, rounds))
    return np.asarray(draw(state, jax.random.key(seed)))


def test_an_autoregression_with_known_parameters_has_its_theoretical_law_at_every_horizon():
    bank = nk.bank([autoregression(A, 1e-12)])
    found = drawn(bank, bank.init(), fed_back(LAST), HORIZON)
    steps = np.arange(1, HORIZON + 1)
    variance = NOISE * (1 - A ** (2 * steps)) / (1 - A**2)
    error = np.sqrt(variance / len(found))
    np.testing.assert_array_less(np.abs(found.mean(axis=0) - A**steps * LAST), 4.5 * error)
    np.testing.assert_allclose(found.var(axis=0), variance, rtol=4.5 * np.sqrt(2 / len(found)))
    level = np.quantile(found[:, [0, 11, 47]], [0.05, 0.95], axis=0)
    exact = A ** steps[[0, 11, 47]] * LAST + 1.645 * np.sqrt(variance[[0, 11, 47]]) * np.array([[-1], [1]])
    np.testing.assert_allclose(level, exact, atol=0.09)
    ahead = bank.forecast(bank.init(), np.array(LAST), HORIZON, lambda mean: mean[0])
    np.testing.assert_allclose(ahead.cov[:, 0, 0], variance, rtol=1e-9)


def test_one_draw_of_the_parameters_serves_all_steps_of_a_path():
    """y_h = w u_h + noise: Cov[y_g, y_h] = P u_g u_h + noise (g = h), exactly."""
    bank = nk.bank([autoregression(A, 0.3)])
    rows = np.array([1.0, -2.0, 0.5])
    found = drawn(bank, bank.init(), known(rows), 3)
    expected = 0.3 * np.outer(rows, rows) + NOISE * np.eye(3)
    np.testing.assert_allclose(np.cov(found.T), expected, atol=0.1)


def test_paths_are_dealt_out_by_weight_and_stay_with_their_member():
    """Two members that expect opposite signs: the share of either is its weight, up to one round."""
    bank = nk.bank([autoregression(1.0, 1e-12), autoregression(-1.0, 1e-12)])
    weights = jnp.log(jnp.array([[0.7], [0.3]]))
    state = bank.init()._replace(log_weights=weights)
    rows = np.full(4, 1000.0)
    found = drawn(bank, state, known(rows), 4, rounds=20)
    positive = found[:, 0] > 0
    assert abs(positive.mean() - 0.7) <= 1 / 20
    assert ((found > 0) == positive[:, None]).all()


def test_a_network_is_followed_as_its_closed_form_says_while_uncertainty_is_small():
    """First order in parameters and noise: Monte Carlo paths and `Bank.forecast` have the same moments."""
    params = nk.mlp_params(jax.random.key(0), (1, 4, 1))
    model = nk.static_model(nk.mlp_apply, params, nk.families.Gaussian(1e-4))
    bank = nk.bank([nk.online(model, prior_cov=scale) for scale in (1e-4, 3e-4)])
    inputs = fed_back(0.5)._replace(at=lambda memory, step: memory[None])
    found = drawn(bank, bank.init(), inputs, 5)
    ahead = bank.forecast(bank.init(), np.array([0.5]), 5, lambda mean: mean)
    deviation = np.sqrt(np.asarray(ahead.cov)[:, 0, 0])
    np.testing.assert_allclose(found.mean(axis=0), ahead.mean[:, 0], atol=0.1 * deviation.min())
    np.testing.assert_allclose(found.std(axis=0), deviation, rtol=0.1)


def test_a_level_that_follows_the_residuals_widens_the_law_as_it_wanders():
    """level <- level + a e: Var[y_h] = s2 (1 + (h - 1) a^2), in closed form and along paths."""
    rate = 0.5
    laws = Student(memories=(1e6,), widths=(1.0,), rates=(rate,))
    model = nk.static_model(lambda w, u: w * u, jnp.zeros(()), nk.families.Gaussian(1.0))
    one = nk.bank([nk.online(model, prior_cov=1e-12)], laws=laws)
    start = one.init()
    noise = start.noise._replace(heard=jnp.full_like(start.noise.heard, 1e5), squares=start.noise.squares * 4e5)
    state = start._replace(noise=noise)
    variance = 4.0 * (1 + np.arange(9) * rate**2)
    ahead = one.forecast(state, np.ones(9), 9)
    np.testing.assert_allclose(ahead.cov[:, 0, 0], variance, rtol=1e-3)
    np.testing.assert_allclose(drawn(one, state, known(np.ones(9)), 9).var(axis=0), variance, rtol=0.12)


def test_forgetting_makes_the_parameters_less_certain_ahead():
    """P grows by 1/keep with every step that is not observed."""
    model = nk.static_model(lambda w, u: w * u, jnp.zeros(()), nk.families.Gaussian(1e-9))
    bank = nk.bank([nk.online(model, prior_cov=1.0, rates=nk.fading(0.1))])
    found = drawn(bank, bank.init(), known(np.ones(8)), 8)
    np.testing.assert_allclose(found.var(axis=0), 0.9 ** -np.arange(8.0), rtol=0.1)


@pytest.mark.slow
def test_recurrent_and_static_members_run_in_one_bank_and_forecast_together():
    """Each member learns as it would alone, and the paths of the bank are those of its members, by weight."""
    family = nk.families.Gaussian(0.1)
    params = nk.mlp_params(jax.random.key(1), (1, 3, 1))
    members = [
        nk.online(nk.recurrent_network(jax.random.key(2), nk.cells.gru(2), 1, family), prior_cov=0.1),
        nk.online(nk.static_model(nk.mlp_apply, params, family), prior_cov=0.1),
    ]
    bank = nk.bank(members)
    assert isinstance(bank, Bank)
    assert len(bank.groups) == 2
    rng = np.random.default_rng(0)
    y = np.sin(np.arange(31) / 3) + 0.1 * rng.normal(size=31)
    state, info = nk.run(bank, bank.init(), y[:-1, None], y[1:])
    for position, member in enumerate(members):
        _, alone = nk.run(member, member.init(), y[:-1, None], y[1:])
        law = scipy.stats.norm(alone.prediction.mean[:, 0], np.sqrt(alone.prediction.cov[:, 0, 0]))
        np.testing.assert_allclose(info.expert_log_prob[:, position, 0], law.logpdf(y[1:]), rtol=1e-8)
    inputs = fed_back(y[-1])._replace(at=lambda memory, step: memory[None])
    found = drawn(bank, state, inputs, 3, rounds=32)
    ahead = bank.forecast(state, y[-1:], 3, lambda mean: mean)
    np.testing.assert_allclose(found.mean(axis=0), ahead.mean[:, 0], atol=0.1)
    np.testing.assert_allclose(found.std(axis=0), np.sqrt(np.asarray(ahead.cov)[:, 0, 0]), rtol=0.25)
