"""No option is ignored, and what was done that nobody asked for is said."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import natkal as nk
from natkal.errors import StreamError
from natkal.reading.first_rows import look
from natkal.reading.memory import open_data
from natkal.reading.source import Source
from natkal.runs.places import format_of
from natkal.runs.predict_rows import predict_rows
from natkal.runs.rejects import column_warnings
from natkal.settings.settings import Settings
from natkal.tables.encode.classes import ClassNumbers
from natkal.tables.schema.infer import MOST_VALUES, ONE_HOT
from tests.app import support

ROWS = [{"a": float(i % 7), "b": i % 3, "y": 0.5 * (i % 7)} for i in range(60)]
ONE_FILTER = {"learner": "single", "model": "linear", "past": "none"}


def schema_of(rows, **changes):
    settings = Settings(**{"targets": ("y",), "sample": 50, **changes})
    return look(settings, open_data(rows, settings.targets))[0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"missing": "foo"}, "missing: must be one of impute, reject, got 'foo'"),
        ({"label_delay": -1}, "label_delay: must be a whole number, 0 or more, got -1"),
        ({"seed": 1.5}, "seed: must be a whole number, 0 or more, got 1.5"),
        ({"sample": 0}, "sample: must be a whole number, 1 or more, got 0"),
        ({"horizon": 20_000}, "horizon: must be a whole number, 1 to 10,000, got 20000"),
        ({"features": ["a", "y"]}, "features: 'y' is the column of target, and no feature"),
        ({"features": ["a", "b:number"], "key": "b"}, "features: 'b' is the column of key, and no feature"),
        ({"key": "y"}, "key: 'y' is the column of target already"),
        ({"id": "a", "key": "a"}, "id: 'a' is the column of key already"),
        ({"target": ["y", "y"]}, "target: 'y' names the column twice"),
        (
            {"predictions": "p.xlsx"},
            "predictions: p.xlsx: cannot write .xlsx files; name one that ends in .csv or .json",
        ),
        ({"predictions": "p.parquet"}, "predictions: p.parquet: cannot write .parquet files"),
        ({"rejects": "r.csv"}, "rejects: r.csv: cannot write .csv files; name one that ends in .jsonl"),
    ],
)
def test_what_no_run_can_have_is_refused(options, sentence):
    with pytest.raises(ValueError, match="^" + sentence.replace(".", r"\.")):
        nk.learn(ROWS, **{"target": "y", **options})


def test_a_run_that_rejects_all_rows_says_so():
    rows = [{**row, "y": "many"} for row in ROWS]
    with pytest.warns(UserWarning, match="of the rows were rejected, most often: column 'y'"):
        run = nk.learn([{**ROWS[0]}, *rows], target="y", task="regression", sample=1, **ONE_FILTER)
    assert run.rows["rejected"] == 60


def test_a_misspelt_feature_of_rows_that_are_dicts_is_named():
    with pytest.warns(UserWarning, match="features: no row has a column 'aa'; did you mean 'a'?"):
        nk.learn(ROWS, target="y", features=["aa", "b"], **ONE_FILTER)


def test_a_target_that_rests_at_first_is_known_by_the_rows_that_follow():
    rows = [{"a": float(i), "y": 0 if i < 300 else i / 7} for i in range(400)]
    assert schema_of(rows).targets[0].task == "regression"
    assert schema_of([{**row, "y": float(i == 350)} for i, row in enumerate(rows)]).targets[0].task == "binary"
    assert schema_of([{**row, "y": 0} for row in rows]).targets[0].classes == ("0",)


def test_decimals_are_no_class_where_classes_are_whole_numbers():
    (target,) = schema_of([{"a": 1.0, "y": i % 2} for i in range(60)]).targets
    numbers = ClassNumbers(target)
    assert "0.37' has decimals" in numbers.complaint("0.37", {})
    assert "--task regression" in numbers.complaint("0.37", {})
    assert numbers.complaint("2", {}) == numbers.complaint("c9", {}) == ""


def test_a_column_that_is_hashed_is_named_and_one_that_was_asked_for_is_not_hashed():
    rows = [{"id": f"n{i % 40}", "y": float(i)} for i in range(200)]
    hashed, asked = schema_of(rows, sample=200), schema_of(rows, sample=200, features=("id:category",))
    assert (hashed.features[0].kind, hashed.features[0].slots) == ("hashed", ONE_HOT)
    assert "--features id:category" in column_warnings(hashed)[0]
    assert (asked.features[0].kind, asked.features[0].slots, column_warnings(asked)) == ("category", 60, [])
    many = [{"id": f"n{i}", "y": float(i)} for i in range(MOST_VALUES + 1)]
    with pytest.raises(StreamError, match="id:hashed lets values share"):
        schema_of(many, sample=len(many), features=("id:category",))


def test_predictions_are_written_as_the_ending_says(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "d.csv"
    path.write_text(support.csv_text(support.table(80)))
    session = support.learn(tmp_path / "run", path)
    for name in ("p.csv", "p.parquet"):
        predict_rows(session, Source([str(path)]), tmp_path / name, None, impute=False)
    found = parquet.read_table(tmp_path / "p.parquet")
    names, *lines = [line.split(",") for line in (tmp_path / "p.csv").read_text().splitlines()]
    assert found.column_names == names
    assert [[str(cell) for cell in row.values()] for row in found.to_pylist()] == lines
    with pytest.raises(StreamError, match=r"--out: p\.xlsx: cannot write \.xlsx files"):
        predict_rows(session, Source([str(path)]), tmp_path / "p.xlsx", None, impute=False)
    assert format_of(Path("/dev/stdout"), "--out", "csv", "jsonl") == "csv"


def test_a_misspelt_column_does_not_cost_the_start_of_jax(tmp_path):
    """Rows are read, options and columns are checked, before JAX is imported."""
    path = tmp_path / "d.csv"
    path.write_text(support.csv_text(support.table(20)))
    code = f"""
import sys
from natkal.cli import app
sys.argv = ["natkal", "learn", {str(path)!r}, "--target", "typo", "--run", {str(tmp_path / "run")!r}]
try:
    app()
except SystemExit as end:
    print(end.code, "jax" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]
    assert "there is no column 'typo'" in done.stderr


def test_decimals_in_the_first_rows_stay_numbers():
    assert schema_of([{"a": 1.0, "y": value} for value in np.linspace(0, 1, 60)]).targets[0].task == "regression"
