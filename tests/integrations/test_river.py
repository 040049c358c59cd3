"""river's own checks, many rows against one by one, and features and classes that come and go."""

import copy
import pickle

import numpy as np
import pytest

pytest.importorskip("river")
pd = pytest.importorskip("pandas")
from river import checks, datasets, evaluate, metrics, preprocessing  # noqa: E402

from natkal.integrations.laws import NUMBER  # noqa: E402
from natkal.river import KalmanClassifier, KalmanRegressor  # noqa: E402
from natkal.sklearn import KalmanClassifier as SklearnClassifier  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 4))
ROWS = [dict(zip("abcd", row.tolist(), strict=True)) for row in X]
REAL = (X @ [1.0, -1.0, 0.5, 0.0] + 3).tolist()
LABELS = [["red", "green", "blue"][int(np.digitize(value, [2.5, 3.5]))] for value in REAL]


@pytest.mark.parametrize("estimator", [KalmanRegressor, KalmanClassifier])
def test_check_estimator(estimator, record_property):
    passed = 0
    model = estimator()
    assert not model._unit_test_skips()
    for check in checks.yield_checks(model):
        check(model.clone())
        passed += 1
    record_property("checks", f"river {estimator.__name__}: {{'passed': {passed}}}")


@pytest.mark.parametrize(("estimator", "targets"), [(KalmanRegressor, REAL), (KalmanClassifier, LABELS)])
def test_learn_many_is_learn_one_repeated(estimator, targets):
    """New classes in the middle of a frame, and columns that are new to the second frame."""
    one, many = estimator(), estimator()
    frame = pd.DataFrame(ROWS)
    for part, columns in ((slice(0, 20), list("ab")), (slice(20, 50), list("abcd"))):
        piece = frame[columns].iloc[part]
        for row, y in zip(piece.to_dict("records"), targets[part], strict=True):
            one.learn_one(row, y)
            one.predict_one(row)
        many.learn_many(piece, pd.Series(targets[part]))
    np.testing.assert_allclose(
        np.asarray(one._slots.__getstate__()["buffer"]), many._slots.buffer, rtol=1e-9, atol=1e-12
    )
    assert one.predict_many(frame).tolist() == pytest.approx([one.predict_one(row) for row in ROWS])


def test_river_and_scikit_learn_are_the_same_learner():
    labels = [y == "blue" for y in LABELS]
    ours, theirs = KalmanClassifier(), SklearnClassifier()
    first = labels.index(False)
    order = [first, *(i for i in range(50) if i != first)]  # the first class seen is class 0
    for i in order:
        ours.learn_one(ROWS[i], labels[i])
    theirs.partial_fit(X[order], np.array(labels)[order])
    expected = theirs.predict_proba(X[:5])[:, 1]
    np.testing.assert_allclose([ours.predict_proba_one(row)[True] for row in ROWS[:5]], expected, rtol=1e-9)


@pytest.mark.parametrize("learner", ["single", "auto"])
def test_a_new_feature_or_class_changes_nothing_else(learner):
    model = KalmanClassifier(fading=0.0, learner=learner)
    for row, y in zip(ROWS[:30], LABELS[:30], strict=True):
        model.learn_one(row, y)
    before = model.predict_proba_one(ROWS[40])
    odds = before["red"] / before["green"]
    for name in range(9):  # more features than there are columns
        model._slots.welcome([f"new {name}"])
    assert model.predict_proba_one(ROWS[40]) == pytest.approx(before)
    model._welcome("violet", ROWS[0])
    model._welcome("brown", ROWS[0])  # more classes than there are slots
    after = model.predict_proba_one(ROWS[40])
    if learner == "single":  # a mixture of laws keeps no odds
        assert after["red"] / after["green"] == pytest.approx(odds)
    assert set(after) == {"red", "green", "blue", "violet", "brown"}


def test_absent_features():
    """Without standardising, an absent feature is 0; a bag of words is learned."""
    model = KalmanClassifier(standardize=False)
    for i in range(60):
        model.learn_one({"good": 1} if i % 2 else {"bad": 1}, bool(i % 2))
    assert model.predict_one({"good": 1, "never seen": 1}) is True
    assert model.predict_one({"bad": 1}) is False
    assert model.predict_proba_one({"bad": 1, "good": 0}) == model.predict_proba_one({"bad": 1})


def test_before_learning_and_laws():
    assert KalmanRegressor().predict_one(ROWS[0]) == 0.0
    assert KalmanClassifier().predict_proba_one(ROWS[0]) == {}
    model = KalmanRegressor()
    for row, y in zip(ROWS, REAL, strict=True):
        model.learn_one(row, y)
    law = model.predict_one(ROWS[0], with_dist=True)
    assert law.mu == model.predict_one(ROWS[0])
    assert 0 < law.sigma < np.std(REAL)


def test_copies_and_pickles_go_on_alike():
    model = KalmanClassifier()
    for row, y in zip(ROWS[:20], LABELS[:20], strict=True):
        model.learn_one(row, y)
    others = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for each in (model, *others):
        each.learn_one(ROWS[20], LABELS[20])
    for other in others:
        assert other.predict_proba_one(ROWS[3]) == model.predict_proba_one(ROWS[3])


def test_pipelines_and_progressive_validation():
    stream = datasets.Phishing().take(300)
    found = evaluate.progressive_val_score(
        stream, preprocessing.StandardScaler() | KalmanClassifier(), metrics.Accuracy()
    )
    assert found.get() > 0.85


def test_complaints():
    model = KalmanRegressor()
    with pytest.raises(TypeError, match="feature 'colour' is 'red', not a number; encode it first"):
        model.learn_one({"a": 1.0, "colour": "red"}, 1.0)
    with pytest.raises(TypeError, match="feature 'a' is 'x', not a number"):
        model.learn_many(pd.DataFrame({"a": ["x"]}), pd.Series([1.0]))
    with pytest.raises(ValueError, match="y: inf is not a finite number"):
        model.learn_one({"a": 1.0}, float("inf"))
    with pytest.raises(ValueError, match="y: 'tall' is not a finite number"):
        model.learn_one({"a": 1.0}, "tall")
    with pytest.raises(ValueError, match="w: must be finite and at least 0, got -1"):
        model.learn_one({"a": 1.0}, 1.0, w=-1.0)
    for kind in (KalmanRegressor, KalmanClassifier):
        with pytest.raises(ValueError, match="y: 1 targets for 2 rows"):
            kind().learn_many(pd.DataFrame({"a": [1.0, 2.0]}), pd.Series([1.0]))
    with pytest.raises(ValueError, match="y: None is not a class"):
        KalmanClassifier().learn_one({"a": 1.0}, None)
    with pytest.raises(ValueError, match="hidden_layer_sizes: must be a tuple of positive whole numbers"):
        KalmanRegressor(hidden_layer_sizes=(0,))
    assert model._slots.law == NUMBER
