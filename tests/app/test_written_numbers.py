"""Numbers as people write them, against numbers formatted in both conventions."""

import numpy as np
import pytest

from natkal.tables.encode.encoder import Encoder
from natkal.tables.schema import cells
from natkal.tables.schema.infer import infer
from natkal.tables.schema.written_numbers import COMMA, FOLLOW, POINT, UNCLEAR, read_number, survey
from tests.app.test_schema import rows_of

VALUES = np.round(np.random.default_rng(0).normal(size=200) * 10.0 ** np.random.default_rng(1).integers(0, 7, 200), 2)
SWAP = str.maketrans(",.", ".,")


@pytest.mark.parametrize("decimal", [POINT, COMMA])
@pytest.mark.parametrize("form", ["{}", "$ {}", "{} €", "USD {}", "{} kr"])
def test_formatted_numbers_read_back(decimal, form):
    for value in VALUES:
        text = f"{value:,.2f}" if decimal == POINT else f"{value:,.2f}".translate(SWAP)
        for group in (text, text.replace("," if decimal == POINT else ".", "\u202f")):
            assert read_number(form.format(group), decimal) == value


@pytest.mark.parametrize(
    ("text", "by_point", "by_comma"),
    [
        ("1,5", None, 1.5),
        ("1.5", 1.5, None),
        ("1,234", 1234.0, 1.234),
        ("0,123", None, 0.123),
        ("1,234,567", 1234567.0, None),
        ("12,34,567.5", 1234567.5, None),
        ("1'234", 1234.0, 1234.0),
        ("(5)", -5.0, -5.0),
        ("−4", -4.0, -4.0),
        ("-$5", -5.0, -5.0),
        ("12%", 0.12, 0.12),
        ("1e3", 1000.0, 1000.0),
        ("--5", None, None),
        ("1,23,45", None, None),
        ("1_0", None, None),
        ("٣", None, None),
        ("12 km", None, None),
        ("$", None, None),
        ("(5", None, None),
    ],
)
def test_each_convention_takes_its_own(text, by_point, by_comma):
    assert (read_number(text, POINT), read_number(text, COMMA)) == (by_point, by_comma)


@pytest.mark.parametrize(
    ("column", "sign"),
    [
        (["1.5", "2"], POINT),
        (["1,5", "2"], COMMA),
        (["1", "2"], FOLLOW),
        (["1.234", "5.678"], FOLLOW),
        (["1,234", "5,678"], UNCLEAR),
        (["950", "1,234", "12,345"], POINT),
        (["0", "1,234"], UNCLEAR),
        (["Rome", "1,5", "Oslo"], FOLLOW),
        ([1.5, 2], FOLLOW),
    ],
)
def test_a_column_shows_its_decimal_sign(column, sign):
    assert survey(column).sign == sign


def test_a_european_table_is_read_as_numbers():
    """Columns that leave the sign open follow those that do not; nothing is taken for a category."""
    price = [f"{value:,.2f} €".translate(SWAP) for value in np.abs(VALUES)]
    count = ["1.234", "950", "12.345"] * 60
    y = [f"{value:.3f}".replace(".", ",") for value in VALUES[:180]]
    schema = infer({"price": price[:180], "count": count, "y": y}, ["y"])
    assert [(feature.kind, feature.decimal) for feature in schema.features] == [("number", COMMA)] * 2
    assert (schema.targets[0].task, schema.targets[0].decimal) == ("regression", COMMA)
    assert schema.all_numbers == []  # the fast reader takes points only
    encoded = Encoder(schema).encode(rows_of({"price": price[:180], "count": count, "y": y}))
    np.testing.assert_array_equal(encoded.inputs[:, 0], np.abs(VALUES)[:180])
    np.testing.assert_array_equal(encoded.inputs[:3, 1], [1234.0, 950.0, 12345.0])
    np.testing.assert_allclose(encoded.targets[:, 0], VALUES[:180])


def test_the_option_decides_what_a_column_leaves_open():
    sample = {"x": ["1,234", "5,678"] * 20, "y": ["0", "1"] * 20}
    for decimal, value in ((POINT, 1234.0), (COMMA, 1.234)):
        encoded = Encoder(infer(sample, ["y"], decimal=decimal)).encode(rows_of(sample))
        assert encoded.inputs[0, 0] == value


def test_thousands_that_come_after_the_first_rows_are_numbers_too():
    encoder = Encoder(infer({"x": ["5", "7.5"] * 20, "y": ["0", "1"] * 20}, ["y"]))
    encoded = encoder.encode(rows_of({"x": ["1,234.5", "1,5"], "y": ["0", "1"]}))
    assert encoded.inputs[:, 0].tolist() == [1234.5]
    assert [reject.reason for reject in encoded.rejects] == ["column 'x': '1,5' is not a number"]


def test_cells_with_a_sign_of_their_own():
    assert cells.number("1.234,5", COMMA) == 1234.5
    assert cells.number(1.5, COMMA) == 1.5
    with pytest.raises(ValueError, match="finite"):
        cells.number("1e999", COMMA)
