"""`nk.learn` is `natkal learn`: the same options, the same numbers, whatever the rows come in."""

import inspect
import warnings

import numpy as np
import pytest

import natkal as nk
from natkal.cli.learn import learn as command
from natkal.reading.first_rows import look
from natkal.reading.memory import open_data
from natkal.runs.forecasting import forecasts
from natkal.settings.fields import options_of
from natkal.settings.settings import OfTheCommand
from tests.app import support

ONE_FILTER = {"learner": "single", "model": "linear", "sample": 50}
VALUES = support.table(120)


def rows() -> list[dict]:
    return [dict(zip("abcy", [*row[:3].tolist(), int(row[3])], strict=True)) for row in VALUES]


def learn(data, **changes) -> nk.Run:
    return nk.learn(data, target="y", **{**ONE_FILTER, **changes})


@pytest.fixture(scope="module")
def by_file(tmp_path_factory):
    """The command line's own run, and the file it read."""
    folder = tmp_path_factory.mktemp("file")
    path = folder / "d.csv"
    path.write_text(support.csv_text(VALUES))
    return path, support.learn(folder / "run", path)


def test_the_options_are_those_of_the_command():
    own = {one.name for one in options_of(OfTheCommand)}
    theirs = set(inspect.signature(command).parameters) - own
    given = inspect.signature(nk.learn).parameters
    assert set(given) - {"progress"} == theirs
    assert nk.learn.__doc__ is not None
    for name in theirs - {"data", "target"}:
        assert f"        {name}: " in nk.learn.__doc__, name
    with pytest.raises(TypeError, match=r"there is no option 'labeldelay'; did you mean 'label_delay'\?"):
        nk.learn(rows(), "y", labeldelay=1)


def columns():
    return {name: VALUES[:, place] for place, name in enumerate("abcy")}


def as_pandas():
    return pytest.importorskip("pandas").DataFrame(rows())


def as_polars():
    return pytest.importorskip("polars").DataFrame(rows())


def as_arrow():
    return pytest.importorskip("pyarrow").Table.from_pylist(rows())


def as_batches():
    """What a PyTorch loader gives: arrays of several rows by name."""
    return ({name: column[first : first + 32] for name, column in columns().items()} for first in range(0, 120, 32))


@pytest.mark.parametrize("make", [rows, columns, as_pandas, as_polars, as_arrow, as_batches, lambda: iter(rows())])
def test_rows_in_memory_give_the_numbers_of_the_file(by_file, make):
    _, session = by_file
    expected = session.metrics.parts[0].summary()
    assert learn(make()).metrics == expected


def test_pairs_of_inputs_and_target(by_file):
    _, session = by_file

    class Dataset:
        """A map-style dataset of PyTorch: pairs of tensors."""

        def __len__(self):
            return len(VALUES)

        def __getitem__(self, place):
            return VALUES[place, :3], int(VALUES[place, 3])

    run = learn(Dataset())
    assert list(run.features) == ["x1", "x2", "x3"]
    assert run.metrics["log_loss"] == session.metrics.parts[0].summary()["log_loss"]


def test_answers_are_frames_of_the_same_kind_one_row_for_each(by_file, tmp_path):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    path, _ = by_file
    run = learn(str(path))
    asked = as_pandas().drop(columns="y").astype({"a": object}).set_index(np.arange(1000, 1120))
    asked.loc[1005, "a"] = "wrong"
    with pytest.warns(UserWarning, match="1 rows cannot be predicted.*row 6: column 'a': 'wrong' is not a number"):
        told = run.predict(asked)
    assert list(told.columns) == ["predicted", "p(0)", "p(1)"]
    assert told.index.equals(asked.index)
    assert told.loc[1005].isna().all()
    good = told.drop(index=1005)
    np.testing.assert_allclose(good["p(0)"] + good["p(1)"], 1.0)
    listed = run.predict(rows()[:5])
    assert isinstance(run.predict(polars.DataFrame(rows()[:5])), polars.DataFrame)
    assert [row["p(1)"] for row in listed] == told["p(1)"].tolist()[:5]
    assert isinstance(told, pandas.DataFrame)
    saved = nk.load_run(run.save(tmp_path / "kept"))
    assert saved.predict(rows()[:5]) == listed
    assert repr(saved) == repr(run)
    with pytest.raises(ValueError, match="has no column b, which the model was trained on; missing_columns impute"):
        run.predict([{"a": 1.0, "c": 2.0}])


def test_a_saved_run_with_forecasts_goes_on(tmp_path):
    run = nk.learn(rows(), target="a", horizon=2, **ONE_FILTER)
    again = nk.load_run(run.save(tmp_path / "kept"))
    assert again.learn(rows()[:5]).rows["learned"] == len(VALUES) + 5


def test_a_folder_of_the_command_is_a_run(by_file):
    _, session = by_file
    run = nk.load_run(session.folder)
    assert run.metrics == session.metrics.parts[0].summary()
    assert run.rows["learned"] == 120


def test_learning_more_is_learning_at_once(by_file, tmp_path):
    _, session = by_file
    run = nk.learn(rows()[:70], target="y", run=tmp_path / "r", **ONE_FILTER).learn(rows()[70:])
    assert run.metrics["log_loss"] == pytest.approx(session.metrics.parts[0].summary()["log_loss"], rel=1e-12)
    assert support.learned(tmp_path / "r").keys() == support.learned(session.folder).keys()
    whole = support.learned(session.folder)
    assert all(np.array_equal(value, whole[name]) for name, value in support.learned(tmp_path / "r").items())
    with pytest.raises(ValueError, match="holds a run: overwrite=True replaces it"):
        nk.learn(rows(), target="y", run=tmp_path / "r")


def test_the_relevant_columns_come_first_and_the_report_shows_itself(by_file, tmp_path):
    path, _ = by_file
    run = learn(path)
    assert next(iter(run.relevance)) in ("b", "c")  # as `support.table` makes them
    assert "srcdoc" in run.report()._repr_html_()
    assert run.report(tmp_path / "r.html").read_text().startswith("<!doctype html>")


@pytest.mark.slow
def test_a_forecast_is_that_of_the_session():
    pandas = pytest.importorskip("pandas")
    series = pandas.DataFrame({"y": 10 + 5 * np.sin(np.arange(200) / 12 * 2 * np.pi) + 0.01 * np.arange(200)})
    run = learn(series, past="1,2,12")
    told = run.forecast(3, level=0.8)
    session = next(forecasts(run._session, 3))
    assert isinstance(told, pandas.DataFrame)
    assert told["predicted"].tolist() == [step["predicted"] for step in session.steps]
    assert (told["low_80"] <= told["predicted"]).all()
    assert (told["low_80"] >= told["q05"]).all()


def test_a_forecast_says_what_is_not_known_ahead_and_leaves_the_run_as_it_is():
    rng = np.random.default_rng(0)
    made = [{"where": "abc"[row % 3], "x": rng.normal(), "hour": row % 24, "y": rng.normal()} for row in range(93)]
    run = learn(made)
    words = [list(names) for names in run._session.encoder.vocabularies.values()]
    with pytest.warns(UserWarning, match=r"^where, x: not known ahead, so recent rows stand for them; future gives"):
        run.forecast(4)
    given = [{"where": "never seen", "x": 0.0, "hour": hour} for hour in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.forecast(4, given)
    assert [list(names) for names in run._session.encoder.vocabularies.values()] == words


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((3, 2)), "an array has no names of columns"),
        (7, "cannot read rows from int"),
        ([[1, 2, 3]], "item 1 is a list; each must be a dict"),
        ({"a": [1, 2], "y": [1]}, "must have one length"),
        ([{"a": 1.0, "Y": 2.0}], "there is no column 'y'; did you mean 'Y'"),
        ("nowhere.csv", "no such file"),
    ],
)
def test_first_mistakes_get_a_sentence(data, message):
    with pytest.raises(ValueError, match=message):
        learn(data)


def test_a_column_alone_and_a_target_alone_get_a_sentence():
    with pytest.raises(ValueError, match=r"Series has no named columns|has no names of columns"):
        learn(as_pandas()["a"])
    with pytest.raises(ValueError, match="nothing to predict from"):
        nk.learn([{"y": float(i % 5)} for i in range(60)], target="y", past="none", progress=False)


def test_a_column_of_categories_is_one_even_if_it_holds_numbers():
    frame = as_pandas()
    frame["a"] = (frame["a"] > 0).astype(int).astype("category")
    frame["y"] = frame["y"].astype("category")
    schema, _ = look(support.settings(), open_data(frame, ["y"]))
    assert (schema.features[0].kind, schema.targets[0].task) == ("category", "binary")


def test_a_class_that_is_alone_at_first_is_predicted_and_the_next_one_learned(tmp_path):
    rows = [{"a": float(i % 5), "y": int(i >= 300)} for i in range(400)]
    kept = tmp_path / "said.csv"
    run = nk.learn(
        iter(rows),
        target="y",
        sample=40,
        model="linear",
        learner="single",
        past="none",
        predictions=kept,
        progress=False,
    )
    said = kept.read_text().splitlines()
    assert said[1].split(",")[1:4] == ["0", "0", "1.0"]
    assert len(said) == 401
    assert run.predict([{"a": 1.0}])[0]["p(1)"] > 0.5


def test_a_model_with_a_memory_gives_limits_of_the_level_asked_for() -> None:
    """The rows were learned without limits; each level has its own, and a saved run gives the same."""
    few = [{"a": i % 5, "y": i % 5 + 0.1 * (i % 3)} for i in range(60)]
    run = nk.learn(few, target="y", model="gru:2", learner="single")
    wide, narrow = (run.predict(few[:2], level=level)[0] for level in (0.9, 0.5))
    assert wide["low_90"] < narrow["low_50"] < narrow["high_50"] < wide["high_90"]
