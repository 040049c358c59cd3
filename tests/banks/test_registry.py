"""Every learner x every method of the protocol and every driver: it works, or one sentence says why not."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.storage.file import StorageError
from tests.banks.registry import LEARNERS, ROWS, WIDTH, Entry

HALF = ROWS // 2
every_learner = pytest.mark.parametrize("entry", LEARNERS)


def plain(tree):
    """All numbers of a pytree, random keys as their words."""
    is_key = lambda leaf: jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)  # noqa: E731
    return [np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf) for leaf in jax.tree.leaves(tree)]


def close(one, other, rtol):
    for left, right in zip(plain(one), plain(other), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e3 * rtol, atol=1e3 * rtol)


def same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for left, right in zip(plain(one), plain(other), strict=True):
        np.testing.assert_array_equal(left, right)


def is_prediction(thing):
    """Looked up without asking: `probabilities` of a real number refuses."""
    names = [name for name in vars(nk.Prediction) if not name.startswith("_")]
    return all(inspect.getattr_static(thing, name, None) is not None for name in names)


def abstract(tree):
    return jax.tree.map(lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf)), tree)


@every_learner
def test_a_scan_of_ones_own_equals_run_in_two_halves(entry: Entry, rtol):
    """The state keeps its structure from `init` on, so that any scan works."""
    learner, (inputs, targets) = entry.learner, entry.stream
    assert isinstance(learner, nk.Learner)
    start = learner.init()
    whole, told = jax.jit(lambda state: jax.lax.scan(lambda now, row: learner.step(now, *row), state, entry.stream))(
        start
    )
    assert abstract(whole) == abstract(start)
    _, first = nk.run(learner, start, inputs[:HALF], targets[:HALF])
    halves, second = nk.run(learner, entry.past, inputs[HALF:], targets[HALF:])
    close(halves, whole, rtol)
    joined = jax.tree.map(lambda *parts: np.concatenate(parts), first, second)
    close(joined.log_prob, told.log_prob, rtol)
    assert np.isfinite(told.log_prob).all()
    np.testing.assert_array_equal(joined.observed, told.observed)
    if entry.kind == "real":
        assert not joined.observed[2]


@every_learner
def test_init(entry: Entry):
    learner = entry.learner
    start = learner.init(key=jax.random.key(1))
    assert abstract(learner.init()) == abstract(start)
    if "params" in entry.refuses:
        with pytest.raises(ValueError, match="params"):
            learner.init(jnp.zeros(WIDTH))
        return
    params = learner.sample(start, jax.random.key(2))
    assert abstract(learner.init(params, jax.random.key(1))) == abstract(start)


def questions(entry: Entry, state, inputs, y, key):
    """All that a prediction and a state can be asked, in one program."""
    learner = entry.learner
    prediction = learner.predict(state, inputs)
    assert is_prediction(prediction)
    answers = {"mean": prediction.mean, "cov": prediction.cov, "log_prob": prediction.log_prob(y)}
    answers["drawn"] = prediction.sample(key)
    if entry.kind == "classes":
        answers["probabilities"] = prediction.probabilities
    else:
        answers["low"], answers["high"] = prediction.interval(0.8)
        answers["cdf"] = prediction.cdf(prediction.quantile(0.3))
        answers["below"] = prediction.cdf(prediction.quantile(0.3) - 1)
    if "sample" not in entry.refuses:
        answers["params"] = learner.sample(state, key)
        answers["covariance"] = learner.covariance(state)
    answers["restarted"] = learner.restart(state)
    return answers


@every_learner
def test_questions(entry: Entry):
    inputs, targets = entry.stream
    state, u, y = entry.past, inputs[HALF], jnp.asarray(targets[HALF])
    answers = jax.jit(lambda *given: questions(entry, *given))(state, u, y, jax.random.key(3))
    assert all(np.isfinite(leaf).all() for leaf in plain({**answers, "restarted": 0}))
    assert answers["cov"].shape == answers["mean"].shape * 2
    assert answers["drawn"].shape == y.shape
    assert answers["log_prob"].shape == ()
    if entry.kind == "classes":
        np.testing.assert_allclose(answers["probabilities"].sum(), 1.0, rtol=1e-5)
        assert answers["probabilities"].shape == (max(entry.outputs, 2),)
        np.testing.assert_allclose(answers["log_prob"], np.log(answers["probabilities"][int(y)]), rtol=1e-4)
    elif entry.kind == "real":
        np.testing.assert_allclose(answers["cdf"], 0.3, atol=1e-3)
        assert (answers["low"] < answers["high"]).all()
    else:
        assert answers["below"] < 0.3 <= answers["cdf"] + 1e-3  # the smallest whole number that reaches 0.3
        assert answers["low"] <= answers["high"]
    assert abstract(answers["restarted"]) == abstract(state)
    if "covariance" in answers:
        cov = np.asarray(answers["covariance"])
        np.testing.assert_allclose(cov, cov.T, rtol=1e-4, atol=1e-8)
        assert cov.shape == (sum(np.size(leaf) for leaf in jax.tree.leaves(answers["params"])),) * 2


@every_learner
def test_what_does_not_apply_is_refused_in_one_sentence(entry: Entry):
    learner, (inputs, _) = entry.learner, entry.stream
    shapes = jax.eval_shape(learner.init)

    def refused(what, call):
        with pytest.raises(ValueError, match=f"^{what}: ") as caught:
            jax.eval_shape(call, shapes)
        assert "\n" not in str(caught.value)

    if entry.kind == "classes":
        refused("quantiles", lambda state: learner.predict(state, inputs[0]).interval())
        refused("quantiles", lambda state: learner.predict(state, inputs[0]).cdf(0.0))
    else:
        refused("probabilities", lambda state: learner.predict(state, inputs[0]).probabilities)
    if "sample" in entry.refuses:
        refused("sample", lambda state: learner.sample(state, jax.random.key(0)))
        refused("covariance", learner.covariance)


@every_learner
def test_forecast(entry: Entry, rtol):
    """Each step has a law of its own; the first one is the prediction of now. A model without memory may refuse."""
    learner, (inputs, _) = entry.learner, entry.stream
    ahead = lambda state: learner.forecast(state, inputs[:2], 2)  # noqa: E731
    jax.eval_shape(ahead, entry.past)
    rolled, now = jax.jit(lambda state: (ahead(state), learner.predict(state, inputs[0])))(entry.past)
    assert is_prediction(rolled)
    assert rolled.mean.shape == (2, *now.mean.shape)
    assert rolled.cov.shape == (2, *now.cov.shape)
    if not hasattr(learner, "units"):  # a forecast's rows do not enter the running scales
        np.testing.assert_allclose(rolled.mean[0], now.mean, rtol=1e3 * rtol, atol=1e3 * rtol)
        np.testing.assert_allclose(rolled.cov[0], now.cov, rtol=1e3 * rtol, atol=1e3 * rtol)


@every_learner
def test_drivers_learn_what_run_learns(entry: Entry, rtol):
    """One call per observation, a fleet of one, and a state that went through a file."""
    learner, (inputs, targets) = entry.learner, entry.stream
    _, expected = nk.run(learner, learner.init(), inputs[:HALF], targets[:HALF])
    service, fleet = nk.live(learner, learner.init()), nk.fleet(learner, 1)
    many = fleet.init()
    for row in range(3):
        given = inputs[row], targets[row]
        np.testing.assert_allclose(service.step(*given).log_prob, expected.log_prob[row], rtol=1e3 * rtol, atol=1e-6)
        many, told = fleet.update(many, [0], *(value[None] for value in given))
        np.testing.assert_allclose(told.log_prob[0], expected.log_prob[row], rtol=1e3 * rtol, atol=1e-6)
    close(fleet.member(many, 0), service.state, rtol)


@every_learner
def test_a_state_goes_through_a_file_bit_for_bit(entry: Entry, tmp_path):
    path = nk.save(tmp_path / "state", entry.learner, entry.past)
    found = nk.load(path, entry.learner)
    same(found, entry.past)


def test_the_state_of_another_learner_is_refused(tmp_path):
    entries = {parameter.id: parameter.values[0] for parameter in LEARNERS}
    path = nk.save(tmp_path / "state", entries["bank"].learner, entries["bank"].past)
    with pytest.raises(StorageError, match=r"not this learner's .*; it was saved from Bank\(2 members"):
        nk.load(path, entries["online dense"].learner)


@every_learner
def test_descriptions_are_short(entry: Entry):
    for thing in (entry.learner, entry.past):
        if type(thing).__module__.startswith("natkal"):
            text = repr(thing)
            assert len(text.splitlines()) <= 3
            assert len(text) <= 360
            assert "Array(" not in text
