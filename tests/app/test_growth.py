"""Columns and classes that appear after the first rows: nothing moves, and nothing depends on where blocks end."""

import json

import numpy as np
import pytest

import natkal as nk
from natkal.errors import StreamError
from natkal.reading import lines
from natkal.reading.first_rows import look
from natkal.reading.source import Source
from natkal.settings.settings import Settings
from natkal.tables.encode import encoder as features
from natkal.tables.encode.encoder import Encoded, Encoder
from natkal.tables.schema.infer import Schema, infer
from natkal.tables.schema.rows import Rows
from tests.app.test_schema import rows_of

FIRST = {"n": [1.0, None, 3.0, 4.0] * 5, "c": ["a", "b"] * 10, "y": ["u", "v"] * 10}


def encoder_of(**options) -> Encoder:
    return Encoder(infer(FIRST, ["y"], open_columns=True, **options))


def taken(encoder: Encoder, rows: Rows) -> Encoded:
    """A block encoded, and what it adds accepted."""
    encoded = encoder.encode(rows)
    encoder.accept(encoded.additions)
    return encoded


def grown(encoder: Encoder, rows: Rows) -> list[Encoded]:
    """A block encoded part by part, each new column taken on where it begins."""
    parts, first = [], 0
    for new in encoder.new_columns(rows):
        if new.row > first:
            parts.append(taken(encoder, rows.part(first, new.row)))
            first = new.row
        encoder.add(new.feature)
    return [*parts, taken(encoder, rows.part(first, len(rows)))]


def test_numbers_stand_where_the_features_stand():
    encoder = encoder_of()
    assert encoder.names[:3] == ["n", "n is missing", "c=(slot 0)"]
    assert encoder.scaled.tolist() == [name == "n" for name in encoder.owners[:1]] + [False] * (encoder.width - 1)


def test_a_new_column_stands_behind_all_others_and_moves_none():
    encoder = encoder_of()
    before = taken(encoder, rows_of(FIRST)).inputs
    before_names = encoder.names
    later = {**FIRST, "m": [None] * 7 + [5, None, 6] + [7] * 10, "t": [None, "x"] * 10, "b": [None] * 19 + [True]}
    found = encoder.new_columns(rows_of(later))
    assert [(new.row, new.feature.name, new.feature.kind) for new in found] == [
        (1, "t", "category"),
        (7, "m", "number"),
        (19, "b", "boolean"),
    ]
    for new in found:
        encoder.add(new.feature)
    width = len(before_names)
    inputs = taken(encoder, rows_of(later)).inputs
    np.testing.assert_array_equal(inputs[:, :width], before)
    assert [name for name in encoder.names if name in before_names][:2] == before_names[:2]
    named = dict(zip(encoder.names, inputs.T, strict=True))
    np.testing.assert_array_equal(named["m"][6:10], [np.nan, 5, np.nan, 6])
    np.testing.assert_array_equal(named["m is missing"][6:10], [1, 0, 1, 0])
    np.testing.assert_array_equal(named["t=x"], [0, 1] * 10)
    assert encoder.scaled.sum() == 2
    assert encoder.scaled[encoder.names.index("m")]
    assert encoder.new_columns(rows_of(later)) == []


def test_an_encoder_goes_on_from_its_schema_and_vocabularies():
    encoder = encoder_of()
    later = rows_of({**FIRST, "t": ["x", None] * 10, "y": ["w", "u"] * 10})
    grown(encoder, later)
    schema = Schema.from_json(json.loads(json.dumps(encoder.schema.to_json())))
    again = Encoder(schema, encoder.vocabularies)
    assert (again.names, again.classes) == (encoder.names, {"y": ["u", "v", "w"]})
    np.testing.assert_array_equal(again.encode(later).inputs, encoder.encode(later).inputs)


def test_growth_does_not_depend_on_where_blocks_end(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    records = []
    for i in range(400):
        keys = [f"k{j}" for j in range(i // 40 + 2) if rng.random() < 0.7]
        record = {key: [None, i, f"w{i % 5}"][int(key[1:]) % 3] for key in keys}
        records.append({**record, "x": i, "y": f"class {rng.integers(i // 50 + 2)}"})
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    results = []
    for chunk in (200, 1000, 1 << 20):
        monkeypatch.setattr(lines, "CHUNK", chunk)
        source = Source([str(path)])
        schema, first = look(Settings(targets=("y",), sample=60), source)
        encoder = Encoder(schema)
        blocks = list(first)
        while (rows := source.read()) is not None:
            blocks.append(rows)
        source.close()
        parts = [part for rows in blocks for part in grown(encoder, rows)]
        by_row = [(len(row), *row[row != 0]) for part in parts for row in part.inputs]
        targets = np.concatenate([part.targets[:, 0] for part in parts])
        results.append((encoder.names, encoder.classes, repr(by_row), targets.tolist()))
        assert len(encoder.classes["y"]) == 9
    assert results[0] == results[1] == results[2]


def test_encoding_changes_nothing_until_it_is_accepted():
    encoder = encoder_of()
    later = rows_of({**FIRST, "c": ["new", "newer"] * 10, "y": ["w", "x"] * 10})
    names, classes = encoder.names, list(encoder.classes["y"])
    first, again = encoder.encode(later), encoder.encode(later)
    assert (encoder.names, encoder.classes["y"]) == (names, classes)
    np.testing.assert_array_equal(first.inputs, again.inputs)
    encoder.accept(again.additions)
    assert encoder.classes["y"] == [*classes, "w", "x"]
    known = encoder.encode(later)
    np.testing.assert_array_equal(known.inputs, first.inputs)
    np.testing.assert_array_equal(known.targets, first.targets)
    assert not any(known.additions.values())


@pytest.mark.parametrize("first", [{}, {"a": 1.0}])
def test_a_run_goes_on_when_a_column_comes_while_rows_wait(tmp_path, first):
    """Also where the table began with its target alone, which decides how many members there are."""
    path = tmp_path / "d.jsonl"
    rows = [{**first, "y": float(i % 12)} | ({"late": float(i % 7)} if i >= 120 else {}) for i in range(160)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = nk.learn(str(path), target="y", model="linear", sample=100)
    assert run.rows["learned"] == 160
    assert "late" in run.features
    run = nk.learn(str(path), target="y", model="linear", learner="single", past="1", sample=100, label_delay=7)
    assert run.rows["learned"] == 160
    assert np.isfinite(run.metrics["log_loss"])


def test_random_keys_do_not_grow_a_row_for_ever(monkeypatch):
    monkeypatch.setattr(features, "MAX_LATE_COLUMNS", 3)
    encoder = encoder_of()
    for block in range(5):
        grown(encoder, rows_of({**FIRST, f"new {block}": [1] * 20, f"other {block}": [{"a": 1}] * 20}))
    assert sum(feature.late for feature in encoder.schema.features) == 3
    assert encoder.schema.ignored["new 3"].startswith("and all that follow: 3 columns")
    assert encoder.schema.ignored["other 0"] == "nested values"
    assert "new 4" not in encoder.schema.ignored


def test_only_what_was_asked_for_is_taken_on():
    later = rows_of({**FIRST, "m": [1] * 20, "z": [2] * 20})
    assert [new.feature.name for new in encoder_of(features=["n", "z"]).new_columns(later)] == ["z"]
    assert [new.feature.kind for new in encoder_of(features=["n", "z:hashed"]).new_columns(later)] == ["hashed"]
    assert [new.feature.name for new in encoder_of(features=["-z"]).new_columns(later)] == ["m"]
    assert encoder_of(missing="reject").new_columns(later) == []
    assert Encoder(infer(FIRST, ["y"])).new_columns(later) == []
    with pytest.raises(StreamError, match="no column 'z'"):
        infer(FIRST, ["y"], features=["z"])


def test_a_new_class_gets_the_next_number_and_a_rejected_row_adds_none():
    encoder = encoder_of(missing="reject")
    encoded = taken(encoder, rows_of({"n": [1, None, 1, "x", 1], "c": ["a"] * 5, "y": ["w", "q", "v", "r", "w"]}))
    assert encoded.targets[:, 0].tolist() == [2.0, 1.0, 2.0]
    assert encoder.classes == {"y": ["u", "v", "w"]}
    assert len(encoded.rejects) == 2


def test_classes_that_were_fixed_stay_so():
    encoder = encoder_of(classes=("u", "v"))
    encoded = encoder.encode(rows_of({**FIRST, "y": ["w"] * 10 + ["v"] * 10}))
    assert encoded.targets[:, 0].tolist() == [1.0] * 10
    assert encoded.rejects[0].reason == "column 'y': 'w' is not one of the 2 classes (u, v)"
    two = Encoder(infer({"y": ["u"] * 20, "n": [1] * 20}, ["y"], task="binary"))
    encoded = taken(two, rows_of({"n": [1] * 3, "y": ["v", "w", "u"]}))
    assert (encoded.targets[:, 0].tolist(), two.classes["y"]) == ([1.0, 0.0], ["u", "v"])


def test_whole_number_classes_are_the_same_by_either_reader():
    encoder = Encoder(infer({"n": ["1"] * 30, "y": ["0", "1", "4"] * 10}, ["y"]))
    assert encoder.schema.all_numbers == ["n", "y"]
    fast = taken(encoder, rows_of({"n": np.ones(6), "y": np.array([4.0, 0.0, 1.0, 7.0, 0.5, 4.0])}))
    careful = encoder.encode(rows_of({"n": ["1"] * 6, "y": ["4", "0.0", "01", "7.0", "0.50", " 4"]}))
    assert fast.targets[:, 0].tolist() == careful.targets[:, 0].tolist() == [2.0, 0.0, 1.0, 3.0, 2.0]
    assert [len(read.rejects) for read in (fast, careful)] == [1, 1]  # a decimal among whole numbers
    assert encoder.classes == {"y": ["0", "1", "4", "7"]}


def test_a_file_that_lacks_trained_columns_is_known():
    table = {"n": [1.0, None] * 10, "c": ["a", "b"] * 10, "k": ["p", "q"] * 10, "y": ["u", "v"] * 10}
    fixed = Encoder(infer(table, ["y"], key="k"))
    assert fixed.missing_columns(["n", "c", "k", "other"]) == []
    assert fixed.missing_columns(["c", "y"]) == ["n", "k"]
    assert fixed.missing_columns([]) == ["n", "c", "k"]
    come_and_go = Encoder(infer(table, ["y"], key="k", open_columns=True))
    assert come_and_go.missing_columns(["c", "k"]) == []  # n was missing in some of the first rows too
    assert come_and_go.missing_columns(["n", "k"]) == ["c"]
