"""Predictive laws against closed forms: unknown noise is Bayesian regression, distribution functions are scipy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import natkal as nk
from natkal.banks.mixture import Mixture
from natkal.laws import Moments, Student, laws_for
from natkal.laws.dispersed import Spread
from natkal.laws.student import HEAVY_FREEDOM, LARGEST_SURPRISE, QUICK_FREEDOM, StudentLaw, student_law

WIDTH = 3


def test_unknown_noise_is_bayesian_linear_regression(rtol):
    """Predictive t of the normal-inverse-gamma posterior, observation by observation."""
    rng = np.random.default_rng(3)
    inputs = rng.normal(size=(30, WIDTH))
    targets = inputs @ np.array([1.0, -2.0, 0.5]) + 0.3 * rng.normal(size=30)
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(WIDTH), nk.families.Gaussian(1.0))
    bank = nk.bank([nk.online(model, prior_cov=4.0)], laws=Student((np.inf,), (1.0,)), share=0.0)
    _, info = nk.run(bank, bank.init(jnp.zeros(WIDTH)), inputs, targets)
    precision, moment, count, squares = np.eye(WIDTH) / 4, np.zeros(WIDTH), 1.0, 1.0
    for row, (u, y) in enumerate(zip(inputs, targets, strict=True)):
        cov = np.linalg.inv(precision)
        centre, variance = u @ cov @ moment, 1 + u @ cov @ u
        law = scipy.stats.t(df=count, loc=centre, scale=np.sqrt(variance * squares / count))
        np.testing.assert_allclose(info.expert_log_prob[row, 0, 0], law.logpdf(y), rtol=100 * rtol, atol=100 * rtol)
        squares, count = squares + (y - centre) ** 2 / variance, count + 1
        precision, moment = precision + np.outer(u, u), moment + y * u


@pytest.mark.parametrize(
    ("family", "law", "oracle"),
    [
        (nk.families.Poisson(), Spread(jnp.asarray([2.5]), jnp.asarray(jnp.inf)), scipy.stats.poisson(2.5)),
        (nk.families.Poisson(), Spread(jnp.asarray([2.5]), jnp.asarray(3.0)), scipy.stats.nbinom(3.0, 3.0 / 5.5)),
        (nk.families.Gamma(2.0), Spread(jnp.asarray([2.5]), jnp.asarray(4.0)), scipy.stats.gamma(4.0, scale=2.5 / 4)),
        (
            nk.families.Gaussian(1.0),
            student_law(jnp.asarray([1.0]), jnp.asarray([[4.0]]), 0.5, 5.0),
            scipy.stats.t(5.0, loc=1.0, scale=1.0),
        ),
    ],
    ids=["poisson", "negative binomial", "gamma", "student"],
)
def test_laws_are_those_of_scipy(family, law, oracle, rtol):
    laws = laws_for(family)
    points = np.array([0.0, 1.0, 2.0, 5.0]) if hasattr(oracle.dist, "pmf") else np.array([0.3, 1.0, 2.0, 5.0])
    density = oracle.logpmf if hasattr(oracle.dist, "pmf") else oracle.logpdf
    for point in points:
        value = jnp.asarray(point)
        np.testing.assert_allclose(laws.log_prob(law, value), density(point), rtol=1e3 * rtol)
        close = 4e-4 if isinstance(law, StudentLaw) else 1e3 * rtol
        np.testing.assert_allclose(laws.cdf(law, value), oracle.cdf(point), atol=close)
    moments = laws.moments(law)
    np.testing.assert_allclose(moments.mean[0], oracle.mean(), rtol=1e3 * rtol)
    np.testing.assert_allclose(moments.cov[0, 0], oracle.var(), rtol=1e3 * rtol)
    drawn = jax.vmap(lambda key: laws.sample(law, key))(jax.random.split(jax.random.key(0), 4000))
    np.testing.assert_allclose(np.mean(drawn), oracle.mean(), atol=4 * oracle.std() / np.sqrt(4000))
    np.testing.assert_allclose(np.mean(drawn <= 2.0), oracle.cdf(2.0), atol=0.03)


def test_quantiles_undo_the_distribution_function():
    """Of a mixture of two laws far apart, in its own units and in others."""
    one, other = (
        student_law(jnp.asarray([mean]), jnp.ones((1, 1)), width, 4.0) for mean, width in ((0.0, 1.0), (5.0, 0.1))
    )
    plain = Mixture(
        mean=jnp.asarray([2.5]),
        spread=jnp.asarray([[7.3]]),
        weights=jnp.asarray([[0.5], [0.5]]),
        experts=jax.tree.map(lambda a, b: jnp.stack([a, b])[:, None], one, other),
        laws=laws_for(nk.families.Gaussian(1.0)),
        family=nk.families.Gaussian(1.0),
    )
    moved = plain.rescaled(jnp.asarray(1.0), jnp.asarray(2.0))
    np.testing.assert_allclose(moved.mean, [6.0])
    np.testing.assert_allclose(moved.cov, [[4 * 7.3]])
    for probability in (0.05, 0.4, 0.95):
        found = plain.quantile(probability)
        np.testing.assert_allclose(plain.cdf(found), probability, atol=1e-4)
        np.testing.assert_allclose(moved.quantile(probability), 1 + 2 * found, rtol=1e-4)
    np.testing.assert_allclose(moved.log_prob(3.0), plain.log_prob(1.0) - np.log(2), rtol=1e-5)


def test_missing_entries_of_a_vector_say_nothing(rtol):
    laws = Student((np.inf,), (1.0,))
    cov = jnp.asarray([[2.0, 0.5], [0.5, 1.0]])
    both = student_law(jnp.asarray([1.0, 2.0]), cov, 1.5, 5.0)
    first = student_law(both.mean[:1], cov[:1, :1], both.width, both.freedom)
    np.testing.assert_allclose(
        laws.log_prob(both, jnp.asarray([0.3, jnp.nan])), laws.log_prob(first, jnp.asarray(0.3)), rtol=10 * rtol
    )


def test_the_scale_of_a_heavy_law_is_that_of_maximum_likelihood():
    """Of normal noise and of noise with a tenth of wild values: scipy's fit with two degrees of freedom."""
    rng = np.random.default_rng(5)
    laws = Student((), (1.0,), heavy=(np.inf,))
    for wild in (0.0, 0.1):
        noise = np.where(rng.uniform(size=4000) < wild, rng.uniform(-90, 90, size=4000), rng.normal(size=4000))
        still = Moments(jnp.zeros(1), jnp.eye(1))

        def learned(memory, y, still=still):
            return laws.observe(memory, still, y), None

        memory, _ = jax.lax.scan(learned, laws.start(jnp.zeros(1).dtype), jnp.asarray(noise))
        _, _, scale = scipy.stats.t.fit(noise, fdf=HEAVY_FREEDOM, floc=0.0)
        np.testing.assert_allclose(laws.laws(memory, still).width[0], scale, rtol=0.03)


def test_a_quick_law_follows_bursts_of_noise_and_forgets_them_ahead(rtol):
    """Width, freedom and log density from the recursion in NumPy; several steps ahead the burst has faded."""
    rng = np.random.default_rng(8)
    memory, quick, variance = 400.0, 4.0, 1.7
    laws = Student((memory,), (0.7, 1.0), quick=(quick,))
    prediction = Moments(jnp.zeros(1), jnp.full((1, 1), variance))
    state, discount = laws.start(prediction.mean.dtype), 1 - 1 / quick
    heard, squares, lasting_heard, lasting = 1.0, 1.0, 1.0, 1.0
    for y in np.concatenate([rng.normal(size=30), 6 * rng.normal(size=8)]):
        law = jax.tree.map(lambda leaf: leaf[-1], laws.laws(state, prediction))
        oracle = scipy.stats.t(min(quick, QUICK_FREEDOM), scale=np.sqrt(variance * squares / heard))
        np.testing.assert_allclose(laws.log_prob(law, jnp.asarray(y)), oracle.logpdf(y), rtol=1e3 * rtol)
        surprise, usual = y**2 / variance, squares / heard
        told = (QUICK_FREEDOM + 1) / (QUICK_FREEDOM + surprise / usual) * surprise
        heard, squares = discount * heard + 1, discount * squares + told
        lasting += -lasting / memory + min(surprise, LARGEST_SURPRISE * lasting / lasting_heard)
        lasting_heard += 1 - lasting_heard / memory
        state = laws.observe(state, prediction, jnp.asarray(y))
    assert laws.count == len(laws.units(state, state.squares.dtype)) == 3
    for ahead in (0, 1, 5):
        expected = lasting / lasting_heard + discount**ahead * (squares / heard - lasting / lasting_heard)
        width = laws.laws(state, prediction, jnp.asarray(ahead)).width[-1]
        np.testing.assert_allclose(width, np.sqrt(expected), rtol=1e3 * rtol)
        path = state
        for _ in range(ahead):
            path = laws.along(path, prediction, jnp.asarray(0.0))
        np.testing.assert_allclose(laws.laws(path, prediction).width[-1], np.sqrt(expected), rtol=1e3 * rtol)
    np.testing.assert_allclose(laws.laws(state, prediction).width[0], 0.7 * np.sqrt(lasting / lasting_heard), rtol=1e-4)


def test_laws_of_bursts_cost_nothing_where_noise_is_steady():
    """Against the same mixture without quick laws: at most the log of the ratio of the numbers of laws, in all."""
    noise = np.random.default_rng(2).normal(size=400)
    model = nk.static_model(lambda w, u: w * u, jnp.zeros(()), nk.families.Gaussian(1.0))
    losses, counts = [], []
    for quick in ((), (3.0, 6.0, 15.0)):
        laws = Student((50.0, 2000.0), (0.7, 1.0), quick=quick)
        bank = nk.bank([nk.online(model, prior_cov=1.0)], laws=laws, share=0.0)
        _, info = nk.run(bank, bank.init(), np.ones(400), noise, keep="log_prob")
        losses.append(-float(np.sum(np.asarray(info.log_prob))))
        counts.append(laws.count)
    assert losses[1] <= losses[0] + np.log(counts[1] / counts[0]) + 1e-2


def test_far_means_of_counts_are_trusted_as_far_as_they_came_true():
    """The slope is the regression of y - k on mean - k through 0 with its prior; it is NumPy's least squares here."""
    laws = laws_for(nk.families.Poisson())
    rng = np.random.default_rng(0)
    for truth in (0.0, 0.6, 1.0):
        memory = laws.start(jnp.float32)
        targets, came, said = [], 0.0, 0.0
        for _ in range(60):
            mean = float(rng.choice([1.0, 30.0]))
            if targets:
                distance = 2 * np.sqrt(np.var(targets) + np.mean(targets) + 1)
                far = np.mean(targets) + distance
                trusted = far + np.clip(came / (said + 3 * distance**2), 0, 1) * (mean - far) if mean > far else mean
                np.testing.assert_allclose(laws.laws(memory, jnp.asarray([mean])).mean[0, 0], trusted, rtol=1e-4)
            value = np.round(1 + truth * (mean - 1))
            if targets and mean > far:
                excess = min(mean - far, 10 * distance)
                came, said = came + excess * (value - far), said + excess**2
            memory = laws.observe(memory, jnp.asarray([mean]), jnp.asarray(value))
            targets.append(value)
    assert float(laws.laws(memory, jnp.asarray([30.0])).mean[0, 0]) > 29  # what always came true
    missing = laws.observe(memory, jnp.asarray([30.0]), jnp.asarray(jnp.nan))
    assert all(jnp.array_equal(new, old) for new, old in zip(missing, memory, strict=True))
    in_tens = laws.in_units(memory, jnp.asarray(10.0))
    np.testing.assert_allclose(in_tens.mean, memory.mean / 10, rtol=1e-6)
