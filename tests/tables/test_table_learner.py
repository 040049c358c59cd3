"""The tabular layer against its parts: the learner on the same rows, and itself cut into pieces."""

import jax
import numpy as np
import pytest

import natkal as nk
from natkal.banks import selection as selection_rules
from natkal.banks.selection import Selection
from natkal.errors import StreamError
from natkal.settings.options import make_options
from natkal.storage.file import check_arrays
from natkal.storage.parts import Stored
from natkal.tables.learner.architectures import Inputs
from natkal.tables.learner.past import Past
from natkal.tables.learner.period import find_period
from natkal.tables.table import TableLearner, TargetShape
from tests.app.support import table

LINEAR = make_options(learner="single", model="linear", past="none")
BINARY = [TargetShape("binary", 2, 2)]


def binary(options=LINEAR, **changes) -> TableLearner:
    return TableLearner(options, [True] * 3, BINARY, limits=False, **changes)


def learn(learner: TableLearner, values: np.ndarray, **options):
    return learner.learn(learner.rows(values[:, :3], values[:, 3:], keys=options.get("keys", ())), **options).wait()


def same_state(left, right) -> bool:
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    plain = [(a, b) for a, b in pairs if not jax.numpy.issubdtype(a.dtype, jax.dtypes.prng_key)]
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in plain)


def test_it_is_the_learner_on_the_same_rows():
    values = table(200)
    tabular = binary()
    told = learn(tabular, values)
    inner = tabular.loop.learners[0]
    inputs = Inputs(values[:, :3], np.full(200, 2, np.int32))
    targets = np.column_stack([values[:, 3], np.ones(200)])
    _, info = nk.run(inner, inner.init(), inputs, targets)
    np.testing.assert_allclose(told.targets[0].log_prob, info.log_prob, rtol=1e-9)
    np.testing.assert_allclose(told.targets[0].probabilities[:, 1], info.prediction.mean[:, 0], rtol=1e-9)


def test_cut_anywhere_the_bits_are_the_same():
    values = table(300)
    values[::7, 0] = np.nan
    whole, cut = binary(), binary()
    expected = learn(whole, values).targets[0].log_prob
    rng = np.random.default_rng(0)
    pieces, first = [], 0
    while first < len(values):
        last = first + int(rng.integers(1, 60))
        pieces.append(learn(cut, values[first:last]).targets[0].log_prob)
        first = last
    np.testing.assert_allclose(np.concatenate(pieces), expected, rtol=1e-12)


def test_models_of_keys_are_the_models_alone():
    values = table(90)
    keys = [f"k{i % 3 if i < 60 else 3 + i % 20}" for i in range(90)]
    together = binary(keyed=True)
    learn(together, values, keys=keys)
    assert len(together.keys) == 23
    for key in ("k0", "k7"):
        alone = binary()
        told = learn(alone, values[[name == key for name in keys]])
        assert np.isfinite(told.targets[0].log_prob).all()
        own = together.one(together.keys[key])[0].bank.members[0]
        np.testing.assert_allclose(
            own.params[0]["weight"], alone.state[0].bank.members[0].params[0]["weight"], rtol=1e-9
        )


def test_a_state_goes_to_disk_and_back():
    values = table(120)
    learner = binary()
    learn(learner, values[:80])
    header, arrays = learner.header(), learner.arrays()
    again = TableLearner.from_header(LINEAR, header, keyed=False, limits=False)
    check_arrays("here", arrays, again.template())
    again.restore(Stored(header, arrays))
    left, right = learn(learner, values[80:]), learn(again, values[80:])
    assert left.targets[0].log_prob.tobytes() == right.targets[0].log_prob.tobytes()
    assert same_state(learner.state, again.state)


@pytest.mark.parametrize("model", ["linear", "mlp:4"])
def test_classes_and_features_that_come_later_are_learned(model):
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(120, 3))
    labels = (inputs[:, 0] > 0).astype(float) + (inputs[:, 1] > 1)
    labels[:60] = np.minimum(labels[:60], 1)
    inputs[:60, 2] = np.nan
    options = make_options(learner="single", model=model, past="none")
    growing = TableLearner(options, [True] * 2, [TargetShape("binary", 2, 2)], limits=False)
    first = growing.learn(growing.rows(inputs[:60, :2], labels[:60, None])).wait()
    growing.add_features([True])
    growing.add_classes(0, 3)
    rest = growing.learn(growing.rows(inputs[60:], labels[60:, None])).wait()
    assert np.isfinite(rest.targets[0].log_prob).all()
    assert rest.targets[0].probabilities.shape == (60, 4)
    late, early = rest.targets[0].log_prob[30:].mean(), first.targets[0].log_prob[:30].mean()
    assert late > -1.1
    assert early > -1.5


@pytest.mark.parametrize("task", ["regression", "positive", "count"])
def test_intervals_hold_nine_rows_of_ten(task):
    """Noise that is not known beforehand; the ranks of what came are spread evenly."""
    rng = np.random.default_rng(4)
    inputs = rng.normal(size=(700, 2))
    noise = rng.standard_t(5, size=700)
    y = {
        "regression": 50 + 10 * inputs[:, 0] + 3 * noise,
        "positive": np.exp(1 + inputs[:, 0] + 0.3 * noise),
        "count": rng.poisson(rng.gamma(np.exp(2 + 0.3 * inputs[:, 0]) / 5, 5)).astype(float),
    }[task]
    options = make_options(model="linear", past="none")
    learner = TableLearner(options, [True] * 2, [TargetShape(task)], limits=task == "regression")
    outcome = learner.learn(learner.rows(inputs, y[:, None])).wait().targets[0]
    rank = outcome.rank[200:]
    assert 0.85 < np.mean((rank > 0.05) & (rank < 0.95)) < 0.96
    if task == "regression":
        inside = (outcome.low <= y) & (y <= outcome.high)
        assert np.mean(inside[200:] == ((rank > 0.05) & (rank < 0.95))) > 0.995


def test_one_wild_target_leaves_no_trace():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(400, 2))
    y = inputs @ [2.0, -1.0] + 0.1 * rng.normal(size=400)
    y[100] = 1e9
    learner = TableLearner(
        make_options(model="linear", past="none"), [True] * 2, [TargetShape("regression")], limits=True
    )
    outcome = learner.learn(learner.rows(inputs, y[:, None])).wait().targets[0]
    assert np.abs(outcome.value - y)[101:].mean() < 0.3


def test_the_past_is_what_was_known():
    past = Past(0, (1, 2))
    rows = past.rows(np.array([1.0, 2.0, np.nan, 4.0, 5.0]), [])
    np.testing.assert_array_equal(rows, [[np.nan, np.nan], [1, np.nan], [2, 1], [2, 1], [4, 2]])
    again = Past(0, (1, 2))
    again.restore(past.state())
    np.testing.assert_array_equal(again.inputs(), [5, 4])
    assert Past(5, None).columns == 10


def test_a_period_is_found_and_noise_has_none():
    time = np.arange(400)
    rng = np.random.default_rng(0)
    season = 10 + 0.05 * time + 3 * np.sin(2 * np.pi * time / 12) + 0.3 * rng.normal(size=400)
    assert find_period(season) == 12
    assert find_period(rng.normal(size=400)) == 0
    assert find_period(np.cumsum(rng.normal(size=400))[:60]) in range(61)


@pytest.mark.parametrize("memory", ["8MB", "1MB", "128kB"])
def test_a_limit_of_memory_is_kept(memory):
    """Counted on the arrays themselves; a checkpoint brings the same mixture back, and too little is refused."""
    options = make_options(memory=memory)
    made = TableLearner(options, [True] * 10, [TargetShape("regression")], limits=False)
    assert sum(array.nbytes for array in made.arrays().values()) <= options.bytes
    again = TableLearner.from_header(options, made.header(), keyed=False, limits=False)
    assert again.member_names == made.member_names
    with pytest.raises(StreamError, match="smallest learner"):
        TableLearner(make_options(memory="1kB"), [True] * 10, [TargetShape("regression")])


def test_a_budget_lets_the_best_members_run_that_fit_into_it():
    """Costs 1, 1 and 5 for the members of three groups: 6 units hold the two best, and 1 of those that do not run."""
    selection = Selection(budget=7.0, costs=(1.0, 1.0, 5.0))
    sizes = (2, 2, 2)
    loss = np.array([0.3, 0.5, 0.6, 0.5, 0.2, 0.4])
    state = selection.init(sizes, np.float64)._replace(seen=np.int32(16384), loss=jax.numpy.asarray(loss))
    log_weights, after = selection.review(jax.numpy.log(jax.numpy.full((6, 1), 1 / 6)), state, sizes)
    assert np.isfinite(log_weights[:, 0]).tolist() == [True, False, False, False, True, False]
    assert np.asarray(after.trial).tolist() == [False, True, False, False, False, False]
    assert [int(own.running) for own in after.running] == [2, 0, 1]
    left_out = make_options(budget="30")
    names = TableLearner(left_out, [True] * 10, [TargetShape("regression")], limits=False).member_names
    assert any("mlp:64 " in name for name in names)
    assert not any("mlp:128" in name for name in names)


def test_mixing_only_the_members_that_run_changes_nothing(monkeypatch):
    """Half of them stop after 256 rows; from there on the mixing has room for no more than run."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(600, 2))
    targets = (inputs @ [2.0, -1.0] + rng.normal(size=600))[:, None]
    told, states = [], []
    for few in (0, 6):
        monkeypatch.setattr(selection_rules, "SETTLED", 256 if few else 1 << 30)
        monkeypatch.setattr(selection_rules, "FEW", few)
        learner = TableLearner(make_options(model="linear", past="none"), [True] * 2, [TargetShape("regression")])
        told.append(learner.learn(learner.rows(inputs, targets)).wait())
        states.append(learner.arrays())
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-8), *told)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-8), *states)


@pytest.mark.parametrize("given", [{"budget": "quick"}, {"budget": "0"}, {"budget": "-3"}, {"memory": "12"}])
def test_a_budget_or_memory_that_is_none_is_refused(given):
    with pytest.raises(StreamError, match=next(iter(given))):
        make_options(**given)


@pytest.mark.parametrize("task", ["regression", "count"])
def test_log_p_is_that_of_the_prediction_that_was_made(task):
    """In the user's units: what `learn` says of a row is what `predict` says of it just before."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(40, 3))
    targets = rng.poisson(300 * np.exp(0.3 * inputs[:, 0])).astype(float)  # counts far above 20 are learned in units
    options = make_options(model="linear", past="none")
    learner = TableLearner(options, [True] * 3, [TargetShape(task)], limits=False)
    learner.learn(learner.rows(inputs[:30], targets[:30, None])).wait()
    asked = learner.predict(learner.rows(inputs[30:31], targets[30:31, None])).targets[0].log_prob
    told = learner.learn(learner.rows(inputs[30:31], targets[30:31, None])).wait().targets[0].log_prob
    np.testing.assert_allclose(told, asked, rtol=1e-9)


@pytest.mark.parametrize("learner", ["single", "fast"])
def test_what_is_too_large_to_square_spoils_nothing(learner):
    """After a target of 1e160 and an input of 1e100 the rows are predicted as without them."""
    options = LINEAR if learner == "single" else make_options(budget="fast", past="none")
    rng = np.random.default_rng(3)
    values = rng.normal(size=(300, 4))
    values[:, 3] = values[:, :3] @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=300)
    hostile = values.copy()
    hostile[150, 3], hostile[180, 1] = 1e160, 1e100
    targets = [TargetShape("regression", 0, 0)]
    found = [learn(TableLearner(options, [True] * 3, targets, limits=True), rows) for rows in (values, hostile)]
    clean, spoiled = (np.abs(told.targets[0].value - values[:, 3])[200:].mean() for told in found)
    outcome = found[1].targets[0]
    assert all(np.isfinite(column).all() for column in (outcome.value, outcome.low, outcome.high, outcome.log_prob))
    assert spoiled < 1.3 * clean
