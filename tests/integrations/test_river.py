"""river's own checks, many rows against one by one, and features and classes that come and go."""

import copy
import pickle

import numpy as np
import pytest

pytest.importorskip("river")
pd = pytest.importorskip("pandas")
from river import checks  # noqa: E402

from natkal.river import KalmanClassifier, KalmanRegressor  # noqa: E402

SINGLE = {"learner": "single", "model": "linear", "past": "none"}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 4))
ROWS = [dict(zip("abcd", row.tolist(), strict=True)) for row in X]
REAL = (X @ [1.0, -1.0, 0.5, 0.0] + 3).tolist()
LABELS = [["red", "green", "blue"][int(np.digitize(value, [2.5, 3.5]))] for value in REAL]


@pytest.mark.parametrize("estimator", [KalmanRegressor, pytest.param(KalmanClassifier, marks=pytest.mark.slow)])
def test_check_estimator(estimator, record_property):
    passed = 0
    model = estimator(**SINGLE)
    assert not model._unit_test_skips()
    for check in checks.yield_checks(model):
        check(model.clone())
        passed += 1
    record_property("checks", f"river {estimator.__name__}: {{'passed': {passed}}}")


@pytest.mark.parametrize(
    ("estimator", "targets"),
    [pytest.param(KalmanRegressor, REAL, marks=pytest.mark.slow), (KalmanClassifier, LABELS)],
)
def test_learn_many_is_learn_one_repeated(estimator, targets):
    """New classes in the middle of a frame, and columns that are new to the second frame."""
    one, many = estimator(**SINGLE), estimator(**SINGLE)
    frame = pd.DataFrame(ROWS)
    for part, columns in ((slice(0, 20), list("ab")), (slice(20, 50), list("abcd"))):
        piece = frame[columns].iloc[part]
        for row, y in zip(piece.to_dict("records"), targets[part], strict=True):
            one.learn_one(row, y)
            one.predict_one(row)
        many.learn_many(piece, pd.Series(targets[part]))
    left, right = one.predict_many(frame), many.predict_many(frame)
    if estimator is KalmanRegressor:
        np.testing.assert_allclose(left, right, rtol=1e-7)
    else:
        assert left.tolist() == right.tolist()


def test_a_copy_goes_on_as_the_original():
    model = KalmanClassifier(**SINGLE)
    for row, label in zip(ROWS[:30], LABELS[:30], strict=True):
        model.learn_one(row, label)
    others = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for row, label in zip(ROWS[30:], LABELS[30:], strict=True):
        for each in (model, *others):
            each.learn_one(row, label)
    expected = model.predict_proba_one(ROWS[0])
    assert sum(expected.values()) == pytest.approx(1)
    for other in others:
        assert other.predict_proba_one(ROWS[0]) == pytest.approx(expected)


def test_what_cannot_be_learned_is_refused():
    model = KalmanRegressor(**SINGLE)
    with pytest.raises(TypeError, match="feature 'a' is 'x', not a number"):
        model.learn_one({"a": "x"}, 1.0)
    with pytest.raises(ValueError, match="is not a finite number"):
        model.learn_one({"a": 1.0}, float("nan"))
    with pytest.raises(ValueError, match="is not a class"):
        KalmanClassifier(**SINGLE).learn_one({"a": 1.0}, None)
    with pytest.raises(ValueError, match="fading"):
        KalmanRegressor(fading=2.0)
