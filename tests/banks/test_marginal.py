"""The law of the target's own past bounds what a row can cost on any stream; inputs have a bounded reach."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import natkal as nk
from natkal.banks.mixing import MARGINAL_ROWS
from natkal.banks.units import scales
from natkal.laws import laws_for, marginal_for

pytestmark = pytest.mark.float64
ROWS, COLUMNS, CLASSES = 60, 3, 3
SHARE, COST = 1 / MARGINAL_ROWS, np.log(MARGINAL_ROWS)
FAMILIES = {
    "binary": nk.families.Bernoulli(),
    "classes": nk.families.Categorical(CLASSES),
    "number": nk.families.Gaussian(1.0),
    "count": nk.families.Poisson(),
    "positive": nk.families.Gamma(1.0),
}


def learner_of(family: nk.families.Family):
    params = nk.mlp_params(jax.random.key(0), (COLUMNS, family.raw_dim))
    return nk.auto(nk.static_model(nk.mlp_apply, params, family), members=2, inputs=np.zeros(COLUMNS))


LEARNERS = {name: learner_of(family) for name, family in FAMILIES.items()}
RUNS = {name: jax.jit(lambda u, y, own=own: nk.run(own, own.init(), u, y)[1]) for name, own in LEARNERS.items()}

numbers = st.one_of(st.floats(-3, 3), st.sampled_from([0.0, 1e3, -1e9, 1e100, 1e300]))


@st.composite
def inputs(draw):
    """Columns that are constant for long, then jump, drift, and have wild values."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    columns = []
    for _ in range(COLUMNS):
        own = draw(numbers) + draw(st.sampled_from([0.0, 1e-3, 1.0, 1e6])) * rng.normal(size=ROWS).cumsum()
        own[: draw(st.integers(0, ROWS))] = draw(numbers)
        own[draw(st.integers(0, ROWS - 1))] = draw(numbers)
        columns.append(own)
    return np.stack(columns, axis=1)


@st.composite
def targets(draw, kind: str):
    """Mostly what a linear rule says, then another rule, with some wild ones."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    change = draw(st.integers(0, ROWS))
    y = np.where(np.arange(ROWS) < change, draw(st.integers(0, 2)), rng.integers(0, 3, ROWS)).astype(float)
    if kind == "binary":
        return np.minimum(y, 1.0)
    if kind == "classes":
        return y
    y = 1 + draw(st.sampled_from([1e-6, 1.0, 1e6])) * y
    y[draw(st.integers(0, ROWS - 1))] = draw(st.sampled_from([1.0, 1e6, 1e12]))
    return np.floor(y) if kind == "count" else y


@pytest.mark.parametrize("kind", FAMILIES)
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_row_costs_more_than_the_targets_own_past_and_its_share(kind: str, data) -> None:
    """-log p(y) <= -log p_own(y) + ln(1 / share); of classes -log p_own(y) <= ln(2 n + K)."""
    u, y = data.draw(inputs()), data.draw(targets(kind))
    info = RUNS[kind](u, y)
    own = info.prediction.marginal
    alone = jax.vmap(info.prediction.marginals.log_prob)(own.law, jnp.asarray(y))
    assert np.all(np.isfinite(info.log_prob))
    assert np.all(np.isfinite(info.prediction.mean))
    assert np.all(np.asarray(own.weight) >= SHARE * (1 - 1e-9))
    assert np.all(np.asarray(info.log_prob) >= np.asarray(alone) - COST - 1e-6)
    if kind in ("binary", "classes"):
        seen = np.arange(ROWS)
        classes = 2 if kind == "binary" else CLASSES
        assert np.all(-np.asarray(info.log_prob) <= np.log(2 * seen + classes) + COST + 1e-6)


@pytest.mark.parametrize("kind", FAMILIES)
def test_laws_of_the_own_past_are_laws(kind: str) -> None:
    """Probabilities sum to 1, distribution functions match them, draws have the mean, units change nothing."""
    family, law_of = FAMILIES[kind], marginal_for(FAMILIES[kind])
    assert law_of is not None
    memory = law_of.start(jnp.zeros(()).dtype)
    for y in (1.0, 0.0, 2.0, 1.0, 1.0) if kind != "binary" else (1.0, 0.0, 1.0, 1.0, 1.0):
        memory = law_of.observe(memory, jnp.asarray(y), jnp.ones(()))
    law = law_of.law(memory)
    if kind in ("binary", "classes"):
        labels = np.arange(2 if kind == "binary" else CLASSES)
        found = [float(law_of.log_prob(law, jnp.asarray(label))) for label in labels]
        counted = np.array([1, 4] if kind == "binary" else [1, 3, 1])
        np.testing.assert_allclose(np.exp(found), (counted + 0.5) / (5 + len(labels) / 2), rtol=1e-12)
        assert family.class_probabilities(law_of.moments(law).mean).sum() == pytest.approx(1)
        return
    grid = np.arange(0.0, 4000) if kind == "count" else np.linspace(0, 50, 200_001)
    density = np.exp(jax.vmap(lambda y: law_of.log_prob(law, y))(grid))
    between = np.asarray(jax.vmap(lambda y: law_of.cdf(law, y))(grid))
    if kind == "count":
        np.testing.assert_allclose(np.cumsum(density), between, rtol=1e-9)
    else:
        summed = np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))
        np.testing.assert_allclose(summed, between[1:] - between[0], atol=5e-3)  # Wallace's approximation of t
    one, three = jnp.ones(()), 3 * jnp.ones(())
    wider = law_of.rescaled(law, 0 * one, three)
    np.testing.assert_allclose(law_of.moments(wider).mean, 3 * law_of.moments(law).mean, rtol=1e-12)
    if kind == "number":
        exact = scipy.stats.t(2, 1.0, np.sqrt(0.4)).logpdf([0.3, 1e3, 1e9])
        given_ = [float(law_of.log_prob(law, jnp.asarray(y))) for y in (0.3, 1e3, 1e9)]
        np.testing.assert_allclose(given_, exact, rtol=1e-9)


def test_members_that_knew_it_all_keep_their_bound() -> None:
    """Beside the own past the bank loses at most ln(1 / (1 - share)) a row more to its best expert."""
    rng = np.random.default_rng(0)
    u = rng.normal(size=(500, 1))
    y = u[:, 0] + 0.1 * rng.normal(size=500)
    model = nk.static_model(lambda w, u: w * u[0], jnp.zeros(()), nk.families.Gaussian(0.01))
    learners = [nk.online(model, prior_cov=cov) for cov in (0.1, 10.0)]
    bank = nk.bank(learners, laws=laws_for(nk.families.Gaussian(0.01)), share=0.0)
    _, info = nk.run(bank, bank.init(), u, y)
    best = np.max(np.sum(np.asarray(info.expert_log_prob), axis=0))
    assert best - np.sum(np.asarray(info.log_prob)) <= bank.regret_bound(500) + 1e-9


def test_the_own_law_of_a_gaussian_knows_what_is_not_known_of_the_parameters() -> None:
    """The probabilities of a linear member's targets multiply to the marginal likelihood N(y; 0, U P U' + R)."""
    rng = np.random.default_rng(1)
    u, noise = rng.normal(size=(20, 2)), 0.3
    y = u @ [1.0, -2.0] + rng.normal(size=20)
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(2), nk.families.Gaussian(noise))
    bank = nk.bank([nk.online(model, prior_cov=cov) for cov in (0.5, 5.0)], share=0.0)
    state, info = nk.run(bank, bank.init(), u, y)
    exact = [
        scipy.stats.multivariate_normal(np.zeros(20), c * u @ u.T + noise * np.eye(20)).logpdf(y) for c in (0.5, 5)
    ]
    np.testing.assert_allclose(np.sum(np.asarray(info.expert_log_prob), axis=0)[:, 0], exact, rtol=1e-9)
    np.testing.assert_allclose(state.log_weights[:, 0], exact - np.logaddexp(*exact), rtol=1e-9, atol=1e-9)


def test_a_column_that_begins_to_move_is_seen_one_deviation_away() -> None:
    """Equal values count as one, however many there were."""
    scale = scales.start((1,), jnp.zeros(()).dtype)
    see = jax.jit(scales.observe)
    for _ in range(3000):
        scale = see(scale, jnp.array([5.0]))
    assert float(scales.standardised(scale, jnp.array([5.0]))[0]) == 0
    scale = see(scale, jnp.array([7.0]))
    assert float(scales.standardised(scale, jnp.array([7.0]))[0]) == pytest.approx(1.0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=2, max_size=200))
def test_no_input_is_seen_further_than_its_number_allows(values: list[float]) -> None:
    """|z| <= sqrt(n), the present value among the n."""
    scale = scales.start((1,), jnp.zeros(()).dtype)
    for count, value in enumerate(values, 1):
        scale = SEE(scale, jnp.array([value]))
        z = float(SEEN(scale, jnp.array([value]))[0])
        assert abs(z) <= np.sqrt(count) * (1 + 1e-9)


SEE, SEEN = jax.jit(scales.observe), jax.jit(scales.standardised)


def test_one_wild_value_at_most_doubles_the_variance_of_a_column_that_mostly_repeats() -> None:
    """An indicator goes on as it was."""
    rng = np.random.default_rng(0)
    scale = scales.start((1,), jnp.zeros(()).dtype)
    for value in (rng.random(400) < 0.1).astype(float):
        scale = SEE(scale, jnp.array([value]))
    before = float(SEEN(scale, jnp.array([1.0]))[0])
    scale = SEE(scale, jnp.array([1e100]))
    assert float(SEEN(scale, jnp.array([1.0]))[0]) > 0.6 * before
