"""The bank's guarantee, on friendly and hostile streams; members run together as they would alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.banks.mixing import mix, regret_bound
from natkal.banks.state import is_sound
from natkal.engine.prediction import make_prediction

COUNT, WIDTH = 60, 3
MODEL = nk.static_model(lambda w, u: w @ u, jnp.zeros(WIDTH), nk.families.Bernoulli())
SETTINGS = [(0.1, 0.0), (10.0, 0.0), (10.0, 0.05)]


def learners():
    return [nk.online(MODEL, prior_cov=prior, rates=nk.fading(fade)) for prior, fade in SETTINGS]


@pytest.fixture(scope="module")
def stream():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(COUNT, WIDTH))
    return inputs, (rng.random(COUNT) < 1 / (1 + np.exp(-2 * inputs[:, 0]))).astype(int)


@pytest.fixture(scope="module")
def plain():
    return nk.bank(learners(), share=0.0)


def excess(bank, info):
    """What the mixture lost to its best expert, in nats."""
    experts = np.asarray(info.expert_log_prob, float).reshape(len(info.log_prob), -1)
    totals = np.sum(np.where(np.isnan(experts), -np.inf, experts), axis=0)
    return np.max(totals) - np.sum(np.asarray(info.log_prob, float))


def test_members_are_one_group(plain):
    assert len(plain.groups) == 1
    assert plain.size == 3


def test_each_member_learns_as_it_would_alone(plain, stream, rtol):
    state, info = nk.run(plain, plain.init(jnp.zeros(WIDTH)), *stream)
    for index, learner in enumerate(learners()):
        alone, said = nk.run(learner, learner.init(jnp.zeros(WIDTH)), *stream)
        np.testing.assert_allclose(info.expert_log_prob[:, index, 0], said.log_prob, rtol=10 * rtol, atol=10 * rtol)
        np.testing.assert_allclose(state.members[0].params[index], alone.params, rtol=10 * rtol, atol=10 * rtol)


def test_run_is_a_loop_over_step_and_predict_agrees(plain, stream, rtol):
    state = plain.init(jnp.zeros(WIDTH))
    _, together = nk.run(plain, state, *stream)
    for row in range(4):
        expected = plain.predict(state, stream[0][row])
        state, info = plain.step(state, stream[0][row], stream[1][row])
        np.testing.assert_allclose(info.prediction.mean, expected.mean, rtol=10 * rtol)
        np.testing.assert_allclose(info.log_prob, together.log_prob[row], rtol=10 * rtol)


@pytest.mark.parametrize("hostile", ["coin", "alternating", "always one then never"])
def test_the_mixture_is_never_worse_than_its_best_member_by_more_than_ln_m(plain, stream, hostile):
    targets = {
        "coin": np.random.default_rng(1).integers(0, 2, COUNT),
        "alternating": np.arange(COUNT) % 2,
        "always one then never": (np.arange(COUNT) < COUNT // 2).astype(int),
    }[hostile]
    _, info = nk.run(plain, plain.init(jnp.zeros(WIDTH)), stream[0], targets)
    assert excess(plain, info) <= np.log(plain.experts) + 1e-5
    assert plain.regret_bound(COUNT) == pytest.approx(np.log(3))


def test_a_member_that_diverges_costs_no_more_than_its_weight(stream):
    wild = nk.online(MODEL, prior_cov=1e12, step_control=nk.step_control(cap=None))
    bank = nk.bank([*learners(), wild], share=0.0)
    assert len(bank.groups) == 2  # another step control is another computation
    _, info = nk.run(bank, bank.init(jnp.zeros(WIDTH)), 1e3 * stream[0], stream[1])
    assert excess(bank, info) <= np.log(4) + 1e-5


def test_fixed_share_keeps_its_own_bound_where_the_best_expert_changes():
    rng = np.random.default_rng(2)
    length, experts, share = 400, 5, 1e-2
    log_probs = rng.normal(-1.0, 0.1, (length, experts)) - 1.0
    log_probs[:200, 1] += 1.0
    log_probs[200:, 3] += 1.0
    log_weights, total = jnp.full(experts, -np.log(experts)), 0.0
    for row in log_probs:
        value, log_weights = mix(log_weights, jnp.asarray(row), share)
        total += float(value)
    best = log_probs[:200, 1].sum() + log_probs[200:, 3].sum()
    assert best - total <= regret_bound(experts, length, share, switches=1)
    assert regret_bound(experts, length, 0.0, switches=1) == np.inf
    np.testing.assert_allclose(np.exp(np.asarray(log_weights)).sum(), 1.0, rtol=1e-5)


def test_weights_stay_where_no_expert_gives_any_probability():
    before = jnp.log(jnp.asarray([0.25, 0.75]))
    total, after = mix(before, jnp.asarray([-jnp.inf, jnp.nan]), 0.0)
    assert total == -jnp.inf
    np.testing.assert_array_equal(before, after)


def test_a_bad_member_starts_again_from_the_best_good_one(plain, stream):
    state, _ = nk.run(plain, plain.init(jnp.zeros(WIDTH)), *stream)
    broken = state.members[0].params.at[2].set(jnp.nan)
    poisoned = state._replace(members=(state.members[0]._replace(params=broken),))
    healed, info = plain.step(poisoned, stream[0][0], stream[1][0])
    assert int(healed.reseeded) == 1
    assert not bool(info.accepted)
    best = int(jnp.argmax(healed.log_weights[:2].sum(axis=1)))
    np.testing.assert_array_equal(healed.members[0].params[2], healed.members[0].params[best])
    assert np.isfinite(float(info.log_prob))


def test_a_negative_variance_of_a_number_is_not_sound():
    normal, coin = nk.families.Gaussian(1.0), nk.families.Bernoulli()
    for outputs, raw, variance, sound in (
        (normal, 0.3, 0.0, True),
        (normal, 0.3, -2.0, False),
        (normal, jnp.nan, 0.5, False),
        (coin, 40.0, 0.0, True),  # a saturated probability has no variance left
    ):
        prediction = make_prediction(outputs, jnp.asarray([raw]), jnp.asarray([[variance]]))
        assert bool(is_sound(outputs, prediction)) == sound


def test_nothing_moves_where_nothing_is_observed(plain, stream):
    state, _ = nk.run(plain, plain.init(jnp.zeros(WIDTH)), *stream)
    after, info = plain.step(state, stream[0][0], np.nan)
    np.testing.assert_array_equal(after.log_weights, state.log_weights)
    np.testing.assert_array_equal(after.members[0].params, state.members[0].params)
    assert not bool(info.observed)
    assert float(info.log_prob) == pytest.approx(0.0, abs=1e-6)


def test_prune_keeps_the_best_and_grow_starts_from_them(plain, stream):
    state, _ = nk.run(plain, plain.init(jnp.zeros(WIDTH)), *stream)
    standing = np.argsort(-np.asarray(state.log_weights)[:, 0])
    small, pruned = plain.prune(state, 2)
    assert small.size == 2
    np.testing.assert_allclose(float(jnp.sum(jnp.exp(pruned.log_weights))), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(small.best(pruned)[1].params, state.members[0].params[standing[0]])
    large, grown = small.grow(pruned, [nk.online(MODEL, prior_cov=1.0, rates=nk.fading(0.2))])
    assert large.size == 3
    np.testing.assert_array_equal(grown.members[1].params[0], small.best(pruned)[1].params)
    np.testing.assert_allclose(float(jnp.sum(jnp.exp(grown.log_weights))), 1.0, rtol=1e-5)
    later, info = nk.run(large, grown, *stream)
    assert bool(jnp.all(jnp.isfinite(info.log_prob)))
    assert bool(jnp.all(later.memory > 0))


def test_a_grid_may_leave_the_prior_out():
    """The prior is then a plain number, checked while the learner is made under vmap and jit."""
    bank = nk.bank(lambda fade: nk.online(MODEL, prior_cov=2.0, rates=nk.fading(fade)), grid={"fade": [0.0, 0.1]})
    state = jax.jit(bank.init)(jnp.zeros(WIDTH))
    assert state.members[0].params.shape == (2, WIDTH)


def test_a_grid_is_the_product_of_its_values(stream):
    def make(prior, fade):
        return nk.online(MODEL, prior_cov=prior, rates=nk.fading(fade))

    bank = nk.bank(make, grid={"prior": [0.1, 10.0], "fade": [0.0, 0.05, 0.1]})
    assert bank.size == 6
    learner, state = bank.best(bank.init(jnp.zeros(WIDTH)))
    assert isinstance(learner, nk.Learner)
    assert state.params.shape == (WIDTH,)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nk.bank([]), "at least one"),
        (lambda: nk.bank(learners(), share=1.0), "share"),
        (lambda: nk.bank(learners(), grid={"a": [1]}), "grid"),
        (lambda: nk.bank(lambda prior: learners()[0]), "needs a grid"),
        (lambda: nk.bank(lambda fade: nk.online(MODEL, rates=nk.fading(fade)), grid={"fade": [2.0]}), "fading"),
        (lambda: nk.bank([1.0]), "not a learner"),
        (lambda: nk.auto(MODEL, members=0), "members"),
    ],
)
def test_wrong_banks_are_refused_in_plain_words(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_batches_are_refused(plain, stream):
    with pytest.raises(ValueError, match="one observation at a time"):
        nk.run(plain, plain.init(jnp.zeros(WIDTH)), *stream, batch_size=5)


def test_a_monitor_stays_quiet_on_data_that_were_understood_and_rings_where_not(plain, stream):
    _, info = nk.run(plain, plain.init(jnp.zeros(WIDTH)), *stream)
    calm = info._replace(surprise=jnp.ones(COUNT))
    assert not nk.monitor(calm, window=20).alarm.any()
    loud = nk.monitor(info._replace(surprise=jnp.where(jnp.arange(COUNT) < 30, 1.0, 9.0)), window=20)
    assert loud.alarm[-1]
    assert not loud.alarm[:30].any()
    np.testing.assert_allclose(loud.log_loss[-1], -np.mean(np.asarray(info.log_prob)), rtol=1e-5)


def test_a_member_whose_units_have_died_starts_again_as_a_copy_of_one_that_learns() -> None:
    """A ReLU network with hidden biases of -100 predicts a constant, every number finite; its group has a live one."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(300, 2))
    targets = np.abs(inputs[:, 0])
    params = [
        {"weight": jnp.asarray(rng.normal(size=(2, 8))), "bias": jnp.zeros(8)},
        {"weight": jnp.asarray(rng.normal(size=(8, 1))), "bias": jnp.zeros(1)},
    ]
    model = nk.static_model(nk.models.mlp_apply, params, nk.families.Gaussian(0.1))
    mixed = nk.bank([nk.online(model, prior_cov=prior) for prior in (0.1, 1.0)])
    start = mixed.init()
    killed = start.members[0].params[0]["bias"].at[1].set(-100.0)
    members = start.members[0]._replace(params=[{**start.members[0].params[0], "bias": killed}, params_of(start, 1)])
    state, _ = nk.run(mixed, start._replace(members=(members,)), inputs[:150], targets[:150])
    assert float(state.members[0].params[0]["bias"][1].max()) < -90
    assert int(state.reseeded) == 0
    state, info = nk.run(mixed, state, inputs[150:], targets[150:])
    assert int(state.reseeded) == 1
    assert float(state.members[0].params[0]["bias"][1].max()) > -90
    assert bool(np.isfinite(info.log_prob).all())


def params_of(state, layer: int):
    return state.members[0].params[layer]


def test_members_that_have_all_stopped_learning_start_again():
    """ReLU units that no input reaches any more: after 200 rows the bank starts from its prior, and learns."""
    params = nk.mlp_params(jax.random.key(0), (2, 8, 1))
    model = nk.static_model(lambda p, u: nk.mlp_apply(p, u, jax.nn.relu), params, nk.families.Gaussian(0.1))
    mixed = nk.bank(
        [nk.online(model, prior_cov=nk.fan_in_prior(params, scale), rates=nk.fading(0.01)) for scale in (1.0, 3.0)]
    )
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(600, 2))
    targets = np.abs(inputs[:, 0]) - inputs[:, 1]
    state, _ = nk.run(mixed, mixed.init(), inputs[:50], targets[:50])
    (members,) = state.members
    killed = [{**members.params[0], "bias": members.params[0]["bias"] - 1e3}, *members.params[1:]]
    state = state._replace(members=(members._replace(params=killed),))
    after, info = nk.run(mixed, state, inputs, targets)
    error = np.abs(info.prediction.mean[:, 0] - targets)
    assert int(after.reseeded) == 2
    assert error[-100:].mean() < 0.3 < 0.6 < error[:150].mean()
