"""One table through every door: the same predictions for the same rows and options."""

import csv

import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.settings.options import make_options
from natkal.tables.learner.choose import LINEAR
from natkal.tables.table import TableLearner, TargetShape
from tests.app.support import csv_text, learn, table

OPTIONS = {"learner": "single", "model": "linear", "past": "none"}


def test_command_line_scikit_learn_river_and_the_table_agree(tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("river")
    from natkal.river import KalmanClassifier as River
    from natkal.sklearn import KalmanClassifier as Scikit

    values = table(90)
    values[:2, 3] = [0, 1]  # both classes are known from the second row on, and river numbers them 0 and 1
    tabular = TableLearner(make_options(**OPTIONS), [True] * 3, [TargetShape("binary", 2, 2)], limits=False)
    told = tabular.learn(tabular.rows(values[:, :3], values[:, 3:])).wait()
    expected = told.targets[0].probabilities[:, 1]
    path = tmp_path / "d.csv"
    path.write_text(csv_text(values))
    predictions = tmp_path / "p.csv"
    learn(tmp_path / "run", path, predictions=str(predictions), classes=("0", "1"), past="none")
    with predictions.open(newline="") as file:
        command_line = [float(row["p(1)"]) for row in csv.DictReader(file)]
    np.testing.assert_allclose(command_line, expected, rtol=1e-9)
    river, scikit = River(**OPTIONS), Scikit(**OPTIONS)
    by_river, by_scikit = [], []
    for row in values:
        x = dict(zip("abc", row[:3].tolist(), strict=True))
        by_river.append(river.predict_proba_one(x).get(1, np.nan))
        river.learn_one(x, int(row[3]))
    scikit.partial_fit(values[:2, :3], values[:2, 3].astype(int), classes=[0, 1])
    for row in values[2:]:
        by_scikit.append(scikit.predict_proba(row[None, :3])[0, 1])
        scikit.partial_fit(row[None, :3], row[3:].astype(int))
    np.testing.assert_allclose(by_river[2:], expected[2:], rtol=1e-7)
    np.testing.assert_allclose(by_scikit, expected[2:], rtol=1e-7)


@pytest.mark.float64
def test_the_table_and_nk_auto_agree():
    """The mixture of linear models of a table is `nk.auto` of that model with its priors and fadings."""
    values = table(90)
    options = make_options(model="linear", past="none", budget="best")
    tabular = TableLearner(options, [True] * 3, [TargetShape("binary", 2, 2)], limits=False)
    told = tabular.learn(tabular.rows(values[:, :3], values[:, 3:])).wait()
    probability = told.targets[0].probabilities[np.arange(90), values[:, 3].astype(int)]
    params = [{"weight": jnp.zeros((3, 1)), "bias": jnp.zeros(1)}]
    model = nk.static_model(nk.mlp_apply, params, nk.families.Bernoulli())
    learner = nk.auto(model, members=LINEAR)
    info = nk.run(learner, learner.init(), values[:, :3], values[:, 3])[1]
    np.testing.assert_allclose(info.log_prob, np.log(probability), rtol=1e-9)
