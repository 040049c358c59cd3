"""An answer has the same names in the file of predictions, in frames and over HTTP."""

import numpy as np

from natkal.runs.answers import PredictionFormat, as_rows, prediction_columns
from natkal.serve.v2 import tensors_of
from natkal.tables.engine.batch import TargetPrediction
from natkal.tables.schema.infer import Target

NONE = np.zeros((2, 0))
PRICE = TargetPrediction(
    np.array([1.0, 2.0]), np.ones(2), np.array([0.0, 1.0]), np.array([2.0, 3.0]), NONE, np.ones(2), np.ones(2)
)
KIND = PRICE._replace(probabilities=np.array([[0.25, 0.75], [0.6, 0.4]]))
TARGETS = (Target("price", "regression", (), ""), Target("kind", "binary", ("a", "b"), ""))


def test_one_vocabulary():
    columns = prediction_columns(TARGETS, (PRICE, KIND), 0.9)
    assert as_rows(columns)[0] == {
        "price.predicted": 1.0,
        "price.low_90": 0.0,
        "price.high_90": 2.0,
        "kind.predicted": "b",
        "kind.p(a)": 0.25,
        "kind.p(b)": 0.75,
    }
    written = PredictionFormat(TARGETS, json_lines=False).names
    assert [name for name in written if "observed" not in name] == ["line", *columns, "kind.p(other)"]
    assert [tensor["name"] for tensor in tensors_of("run", columns, None)["outputs"]] == list(columns)


def test_a_class_that_came_after_the_rows_had_no_probability():
    later = (Target("kind", "multiclass", ("a", "b", "c"), ""),)
    assert as_rows(prediction_columns(later, (KIND,), 0.9))[1] == {
        "predicted": "a",
        "p(a)": 0.6,
        "p(b)": 0.4,
        "p(c)": 0.0,
    }
