"""Tables that gain classes and columns: what a late class is told beforehand, and what a limit of memory lets go."""

from pathlib import Path

import numpy as np
import pytest

import natkal as nk
from natkal.errors import StreamError
from natkal.settings.options import make_options
from natkal.tables.learner.past import Past
from natkal.tables.table import TableLearner, TargetShape

pytestmark = pytest.mark.float64
LINEAR = make_options(model="linear", past="none")


def table(count: int, classes: int, columns: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Rows of numbers, and the score of each class, which depends on them."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(count, columns))
    return inputs, inputs @ rng.normal(size=(columns, classes)) + rng.gumbel(size=(count, classes))


def learn(learner: TableLearner, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Log p of each label, in blocks that end where there is no room for a class."""
    found, first = [], 0
    while first < len(labels):
        beyond = labels[first:] >= learner.targets[0].classes
        last = first + int(np.argmax(beyond)) if beyond.any() else len(labels)
        if last == first:
            learner.add_classes(0, int(labels[first]) + 1)
            continue
        rows = learner.rows(inputs[first:last], labels[first:last, None].astype(float))
        found.append(learner.learn(rows).wait().targets[0].log_prob)
        first = last
    return np.concatenate(found)


def test_one_stray_label_changes_little() -> None:
    """After n rows of two classes and one of a third the next rows give the third about 1/n."""
    count = 800
    inputs, scores = table(count + 101, 2)
    labels = scores.argmax(axis=1)
    labels[count] = 2
    learner = TableLearner(LINEAR, [True] * 4, [TargetShape("binary", 2, 2)], limits=False)
    told = learn(learner, inputs[: count + 1], labels[: count + 1])
    assert np.log(0.1 / count) < told[-1] < np.log(10 / count)
    after = learner.predict(learner.rows(inputs[count + 1 :])).targets[0].probabilities[:, 2]
    assert 0.1 / count < after.mean() < 10 / count


@pytest.mark.parametrize("past", ["none", "auto"])
def test_classes_in_turn_cost_what_classes_named_beforehand_do(past: str) -> None:
    """Log loss from the row of the last class on: within 0.01 nats a row."""
    count, every = 1800, 200
    inputs, scores = table(count, 4)
    known = np.minimum(2 + np.arange(count) // every, 4)
    labels = np.array([scores[row, :some].argmax() for row, some in enumerate(known)])
    order = {label: number for number, label in enumerate(dict.fromkeys(labels.tolist()))}
    labels = np.array([order[label] for label in labels.tolist()])
    options = make_options(model="linear", past=past)
    losses = []
    for target in (TargetShape("multiclass", 4, 4), TargetShape("binary", 2, 2)):
        learner = TableLearner(options, [True] * 4, [target], limits=False)
        losses.append(-learn(learner, inputs, labels)[2 * every :].mean())
    assert losses[1] - losses[0] < 0.01


def test_a_class_that_comes_later_is_no_number_in_the_past() -> None:
    """Two classes are -1 and 1 there; a third one is neither, and not 3."""
    past = Past(2, (1, 2))
    rows = past.rows(np.array([0.0, 1.0, 2.0, 19.0, 0.0]), [])
    np.testing.assert_array_equal(rows, [[0, 0], [-1, 0], [1, -1], [0, 1], [0, 0]])


def test_rows_that_wait_for_their_label_take_a_column_that_comes_among_them() -> None:
    """It is missing in them; all of them are learned in the end."""
    rng = np.random.default_rng(0)
    rows = [{"a": float(value), "y": float(value > 0)} for value in rng.normal(size=140)]
    rows = [row | ({"late": float(number)} if number >= 120 else {}) for number, row in enumerate(rows)]
    run = nk.learn(rows, target="y", task="binary", learner="single", model="linear", sample=100, label_delay=5)
    assert run.rows["learned"] == 140
    assert "late" in run.features


USERS_OWN = """
import jax.numpy as jnp
import numpy as np

def layers(inputs, outputs):
    return lambda p, u: jnp.tanh(u @ p["in"]) @ p["out"], {"in": np.ones((inputs, 3)), "out": np.zeros((3, outputs))}

def one_vector(inputs, outputs):
    return lambda p, u: u @ p[:-1].reshape(len(u), outputs) + p[-1], np.zeros(inputs * outputs + 1)
"""


@pytest.mark.parametrize(("name", "again"), [("layers", False), ("one_vector", True)])
def test_a_network_of_the_users_own_starts_again_where_nothing_tells_its_parameters_apart(
    name: str, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere a row without the new column has the prediction it had."""
    (tmp_path / "users_own_network.py").write_text(USERS_OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    inputs, scores = table(60, 2)
    options = make_options(learner="single", model=f"users_own_network:{name}", past="none")
    learner = TableLearner(options, [True] * 4, [TargetShape("binary", 2, 2)], limits=False)
    learn(learner, inputs, scores.argmax(axis=1))
    before = learner.predict(learner.rows(inputs[:5])).targets[0].probabilities
    learner.add_features([True])
    after = learner.predict(learner.rows(inputs[:5])).targets[0].probabilities
    if again:
        assert not np.asarray(learner.state[0].bank.members[0].params).any()
    else:
        np.testing.assert_allclose(after, before, rtol=1e-9)
    assert np.isfinite(learn(learner, inputs, scores.argmax(axis=1))).all()


def test_a_limit_of_memory_lets_members_go_when_a_table_grows() -> None:
    """The lightest first; where not even the heaviest fits, the table stays as it was and goes on learning."""
    options = make_options(model="linear", past="none", memory="8kB")
    inputs, scores = table(60, 2)
    learner = TableLearner(options, [True] * 4, [TargetShape("binary", 2, 2)], limits=False)
    learn(learner, inputs, scores.argmax(axis=1))
    before = dict(zip(learner.specs[0].member_names, learner._weights()[0].values(), strict=True))
    learner.add_classes(0, 4)
    left = learner.specs[0].member_names
    assert 0 < len(left) < len(before)
    assert sum(array.nbytes for array in learner.arrays().values()) <= options.bytes
    gone = [weight for name, weight in before.items() if name not in left]
    assert max(gone) <= min(before[name] for name in left)
    with pytest.raises(StreamError, match="memory: 8kB is too little"):
        learner.add_classes(0, 200)
    assert learner.targets[0].classes == 4
    assert np.isfinite(learn(learner, inputs, scores.argmax(axis=1))).all()
