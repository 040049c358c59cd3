"""What a newcomer gets wrong first is answered with a sentence; what can be converted is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.storage.file import StorageError

ROWS = np.random.default_rng(0).normal(size=(6, 2))
LABELS = (ROWS[:, 0] > 0).astype(int)
PARAMS = jnp.zeros(2)
LEARNER = nk.online(nk.static_model(lambda w, u: jnp.asarray(u) @ w, PARAMS, nk.families.Bernoulli()))


def test_many_rows_are_the_rows_one_by_one(rtol):
    state, _ = nk.run(LEARNER, LEARNER.init(), ROWS.tolist(), LABELS.tolist())
    together = nk.predict_many(LEARNER, state, ROWS)
    for row, one in enumerate(ROWS):
        np.testing.assert_allclose(together.probabilities[row], LEARNER.predict(state, one).probabilities, rtol=rtol)


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: LEARNER.predict(LEARNER.init(), ROWS), ValueError, "this is one row, for many .* nk.predict_many"),
        (lambda: nk.run(LEARNER, PARAMS, ROWS, LABELS), TypeError, r"learner.init\(\) gives KalmanState"),
        (lambda: nk.run(LEARNER, None, ROWS, LABELS), TypeError, "got None; pass the state"),
        (lambda: nk.run(LEARNER, LEARNER, ROWS, LABELS), TypeError, "got a learner; pass the state"),
        (lambda: nk.run(LEARNER, LEARNER.init(), [[1.0], [1.0, 2.0]], [0, 1]), ValueError, "different lengths"),
        (lambda: nk.predict_many(LEARNER, LEARNER.init(), np.zeros((2, 5))), ValueError, r"row of shape \(5,\)"),
        (lambda: nk.predict_many(LEARNER, LEARNER.init(), 1.0), ValueError, "one row for each prediction"),
        (lambda: nk.online(PARAMS), TypeError, "model: got .* nk.static_model"),
        (lambda: nk.online(LEARNER.model, rates=0.1), TypeError, "rates: got 0.1; pass nk.fading"),
        (lambda: nk.online(LEARNER.model, curvature=nk.diagonal), TypeError, r"pass one such as nk.diagonal\(\)"),
        (lambda: nk.save("state.nk", LEARNER, PARAMS), StorageError, "not what this learner's init"),
        (lambda: nk.save("no/folder/a.nk", LEARNER, LEARNER.init()), StorageError, "no folder"),
    ],
)
def test_first_mistakes_get_a_sentence(act, error, message):
    with pytest.raises(error, match=message):
        act()


def test_a_batch_where_one_row_belongs_gets_a_sentence_beside_the_error_of_jax():
    learner = nk.online(nk.static_model(lambda w, u: w @ u, PARAMS, nk.families.Bernoulli()))
    with pytest.raises(TypeError) as failure:
        learner.predict(learner.init(), ROWS)
    assert "predict takes one row" in failure.value.__notes__[-1]
    assert "nk.predict_many" in failure.value.__notes__[-1]


def test_states_and_learners_print_in_three_lines():
    model = nk.static_model(nk.mlp_apply, nk.mlp_params(jax.random.key(0), (2, 4, 1)), nk.families.Bernoulli())
    for learner in (LEARNER, nk.auto(model, members=2), nk.averaged(LEARNER)):
        for shown in (repr(learner), repr(learner.init())):
            assert len(shown.splitlines()) <= 3
            assert len(shown) <= 300
