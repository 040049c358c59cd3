"""What columns are, and what becomes of their cells."""

import datetime
import math

import numpy as np
import pytest

from natkal.errors import StreamError
from natkal.tables.encode.encoder import Encoder
from natkal.tables.schema import cells
from natkal.tables.schema.columns import calendar
from natkal.tables.schema.infer import Schema, infer
from natkal.tables.schema.rows import Position, Rows

SAMPLE = {
    "n": ["1.5", "2", "", "4"],
    "flag": ["yes", "no", "yes", "no"],
    "city": ["Rome", "Oslo", "Rome", ""],
    "when": ["2024-01-01", "2024-01-02T06:00", "2024-02-01", ""],
    "empty": ["", "", "", ""],
    "y": ["0", "1", "1", "0"],
}


def rows_of(columns: dict) -> Rows:
    count = len(next(iter(columns.values())))
    return Rows("f", columns, np.arange(2, count + 2), [], 0, Position(0, 0, 1))


def test_types_are_inferred():
    schema = infer(SAMPLE, ["y"])
    assert {feature.name: feature.kind for feature in schema.features} == {
        "n": "number",
        "flag": "boolean",
        "city": "category",
        "when": "time",
    }
    assert schema.ignored == {"empty": "empty in the first rows"}
    assert (schema.targets[0].task, schema.targets[0].classes) == ("binary", ("0", "1"))
    assert Schema.from_json(schema.to_json()) == schema


def test_features_can_be_chosen():
    schema = infer(SAMPLE, ["y"], features=["n:category", "city"])
    assert {feature.name: feature.kind for feature in schema.features} == {"n": "category", "city": "category"}
    assert "n" not in {feature.name for feature in infer(SAMPLE, ["y"], features=["-n"]).features}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"targets": ["z"]}, "no column 'z'; the data has n, flag"),
        ({"targets": ["y"], "features": ["q"]}, "no column 'q'"),
        ({"targets": ["y"], "features": ["n:colour"]}, "'colour' is not one of number"),
        ({"targets": ["city"], "task": "regression"}, "'Rome' is not a number"),
        ({"targets": ["empty"]}, "empty in all"),
        ({"targets": ["city"], "task": "binary", "classes": ["a"]}, "one class"),
    ],
)
def test_wrong_questions_are_refused(arguments, complaint):
    with pytest.raises(StreamError, match=complaint):
        infer(SAMPLE, **arguments)


def test_rows_become_numbers():
    encoder = Encoder(infer(SAMPLE, ["y"]))
    encoded = encoder.encode(rows_of(SAMPLE))
    encoder.accept(encoded.additions)
    named = dict(zip(encoder.names, encoded.inputs.T, strict=True))
    np.testing.assert_array_equal(named["n"], [1.5, 2.0, np.nan, 4.0])
    np.testing.assert_array_equal(named["n is missing"], [0, 0, 1, 0])
    np.testing.assert_array_equal(named["flag"], [1, 0, 1, 0])
    np.testing.assert_array_equal(named["city=Rome"], [1, 0, 1, 0])
    np.testing.assert_array_equal(named["city=Oslo"], [0, 1, 0, 0])
    np.testing.assert_allclose(named["when day sin"], [0, 1, 0, 0], atol=1e-12)
    np.testing.assert_array_equal(encoded.targets[:, 0], [0, 1, 1, 0])
    assert len(encoder.owners) == len(encoder.names) == encoder.width


def test_a_vocabulary_grows_with_good_rows_only_and_ends_in_other():
    encoder = Encoder(infer({"city": ["a", "b", "a", "b"], "y": ["0", "1", "0", "1"]}, ["y"], classes="01"))
    slots = encoder.width
    words = [f"w{i}" for i in range(10)]
    encoded = encoder.encode(rows_of({"city": ["bad", *words], "y": ["7", *["1"] * 10]}))
    encoder.accept(encoded.additions)
    assert [reject.line for reject in encoded.rejects] == [2]
    assert encoder.vocabularies["city"] == words[: slots - 1]
    assert encoded.inputs.sum(axis=1).tolist() == [1.0] * 10
    assert encoded.inputs[-1].argmax() == slots - 1


def test_hashed_categories_do_not_depend_on_order():
    words = [f"word{i}" for i in range(60)]
    sample = {"w": words * 4, "y": ["0", "1"] * 120}
    schema = infer(sample, ["y"])
    assert schema.features[0].kind == "hashed"
    first = Encoder(schema).encode(rows_of({"w": words, "y": ["0"] * 60})).inputs
    second = Encoder(schema).encode(rows_of({"w": words[::-1], "y": ["0"] * 60})).inputs
    np.testing.assert_array_equal(first, second[::-1])
    assert np.abs(first).sum(axis=1).tolist() == [1.0] * 60


def test_missing_values_can_be_rejected():
    encoded = Encoder(infer(SAMPLE, ["y"], missing="reject")).encode(rows_of(SAMPLE))
    assert [(reject.line, reject.reason) for reject in encoded.rejects] == [
        (4, "column 'n': the value is missing"),
        (5, "column 'city': the value is missing"),
    ]


def test_the_calendar_goes_round():
    monday = datetime.datetime(2024, 1, 1)
    np.testing.assert_allclose(calendar(monday), [0, 1, 0, 1, 0, 1], atol=1e-12)
    np.testing.assert_allclose(calendar(monday + datetime.timedelta(days=364))[:4], [0, 1, 0, 1], atol=1e-12)
    assert all(abs(value) <= 1 for value in calendar(datetime.datetime(2024, 12, 31, 23, 59, 59)))


@pytest.mark.parametrize("cell", ["1_0", "٣", "0x1", "1e999", "inf", [1], {"a": 1}, "one", 10**400])
def test_what_is_no_number(cell):
    with pytest.raises(ValueError, match="number"):
        cells.number(cell)


def test_missing_comes_in_many_spellings():
    for cell in (None, "", " ", "NA", "n/a", "NaN", "null", math.nan, "?"):
        assert cells.is_missing(cell)
    assert not cells.is_missing("0")
