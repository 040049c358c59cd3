"""`learn --horizon` and `natkal forecast`: scores counted by hand, resumed runs, files, keys and refusals."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from natkal.cli import app
from natkal.errors import StreamError
from natkal.runs.forecast_scores import FIRST_FORECAST
from tests.app.support import arrays, learn, resume, same_arrays

ROWS, HORIZON = 60, 4
OPTIONS = {"past": "1,2", "horizon": HORIZON}


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    """A wave with noise, a row a day."""
    rng = np.random.default_rng(0)
    y = 20 + 5 * np.sin(np.arange(ROWS) / 3) + 0.3 * rng.normal(size=ROWS)
    file = tmp_path_factory.mktemp("series") / "series.csv"
    days = [f"2024-{1 + day // 28:02d}-{1 + day % 28:02d}" for day in range(ROWS)]
    file.write_text("day,y\n" + "".join(f"{day},{value!r}\n" for day, value in zip(days, y.tolist(), strict=True)))
    return file, y


@pytest.fixture(scope="module")
def run(series, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    return learn(folder, series[0], **OPTIONS)


def call(*arguments):
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return found.exit_code, found.output


def test_every_row_is_scored_at_every_step_ahead(run, series):
    y = series[1]
    totals = run.forecasts.totals
    origins = ROWS - FIRST_FORECAST + 1
    assert totals[:, 0].tolist() == [origins - step for step in range(1, HORIZON + 1)]
    last = [np.abs(y[FIRST_FORECAST - 1 + step :] - y[FIRST_FORECAST - 1 : -step]).sum() for step in (1, 2, 3, 4)]
    np.testing.assert_allclose(totals[:, 4], last, rtol=1e-9)
    rows = list(csv.DictReader((run.folder / "forecasts.csv").read_text().splitlines()))
    assert len(rows) == totals[-1, 0]
    errors = [abs(float(row["observed"]) - float(row["predicted"])) for row in rows]
    assert sum(errors) == pytest.approx(totals[-1, 1])
    inside = [float(row["low_90"]) <= float(row["observed"]) <= float(row["high_90"]) for row in rows]
    assert sum(inside) == totals[-1, 3]


def test_a_run_that_stops_and_goes_on_has_the_same_forecasts(run, series, tmp_path, monkeypatch):
    from natkal.reading import lines

    monkeypatch.setattr(lines, "CHUNK", 300)
    stops = iter([False, False, True])
    cut = learn(tmp_path / "cut", series[0], stop=lambda: next(stops, True), **OPTIONS)
    assert 0 < cut.counts.read < ROWS
    again = resume(tmp_path / "cut", series[0])
    assert again.counts.read == ROWS
    assert same_arrays(arrays(tmp_path / "cut"), arrays(run.folder))
    assert (tmp_path / "cut" / "forecasts.csv").read_bytes() == (run.folder / "forecasts.csv").read_bytes()
    assert again.clock.state() == run.clock.state()


def test_the_command_prints_medians_and_limits(run, tmp_path):
    code, text = call("forecast", run.folder, "--json")
    assert code == 0, text
    told = json.loads(text)
    assert [entry["step"] for entry in told["forecast"]] == [1, 2, 3, 4]
    assert told["forecast"][0]["time"] == "2024-03-05"
    assert told["warnings"] == []
    for entry in told["forecast"]:
        assert entry["low_90"] < entry["predicted"] < entry["high_90"]
        assert entry["quantiles"]["0.5"] == entry["predicted"]
    page = (run.folder / "report.html").read_text()
    assert "Forecast of y" in page
    assert "Coverage by rows ahead" in page
    out = tmp_path / "ahead.csv"
    assert call("forecast", run.folder, "--out", out, "--no-report")[0] == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert list(rows[0])[:6] == ["step", "time", "predicted", "low_90", "high_90", "q05"]
    assert float(rows[2]["predicted"]) == told["forecast"][2]["predicted"]


def test_a_series_that_is_too_short_for_scores_says_so(series, tmp_path):
    short = tmp_path / "short.csv"
    short.write_text("\n".join(series[0].read_text().splitlines()[:12]))
    code, text = call("learn", short, "--target", "y", "--horizon", 2, "--run", tmp_path / "short", "--no-report")
    assert code == 0, text
    assert "none scored yet, as the first is made after 24 rows" in " ".join(text.split())


def test_columns_to_come_are_taken_from_a_file(run, tmp_path):
    future = tmp_path / "future.csv"
    future.write_text("day\n2024-03-05\n2024-03-06\n")
    code, text = call("forecast", run.folder, "--horizon", 4, "--future", future, "--no-report")
    assert code == 1
    assert "has 2 rows, and --horizon is 4; give a row for each step, or --horizon 2" in text
    future.write_text("other\n1\n")
    code, text = call("forecast", run.folder, "--future", future, "--no-report")
    assert code == 1
    assert f"{future} has none of the columns that were learned (day); it has other;" in text
    future.write_text("day\n" + "".join(f"2024-03-{day:02d}\n" for day in range(5, 9)))
    code, text = call("forecast", run.folder, "--future", future, "--no-report", "--json")
    assert code == 0
    assert [entry["time"] for entry in json.loads(text)["forecast"]][-1] == "2024-03-08"


@pytest.mark.slow
def test_each_key_is_forecast_from_its_own_last_row(tmp_path):
    rng = np.random.default_rng(1)
    file = tmp_path / "keys.csv"
    lines = [f"{name},{place + rng.normal():.6f}" for _ in range(40) for name, place in (("a", 0), ("b", 100))]
    file.write_text("shop,y\n" + "\n".join(lines) + "\n")
    folder = tmp_path / "run"
    learn(folder, file, key="shop", past="1")
    code, text = call("forecast", folder, "--horizon", 3, "--json", "--no-report")
    assert code == 0, text
    told = json.loads(text)["forecast"]
    assert [entry["shop"] for entry in told] == ["a"] * 3 + ["b"] * 3
    assert abs(told[0]["predicted"]) < 3
    assert abs(told[3]["predicted"] - 100) < 3
    one = json.loads(call("forecast", folder, "--horizon", 3, "--json", "--no-report", "--key", "b")[1])
    for alone, together in zip(one["forecast"], told[3:], strict=True):
        assert alone["predicted"] == pytest.approx(together["predicted"], rel=1e-9)
        assert alone["high_90"] == pytest.approx(together["high_90"], rel=1e-9)
    code, text = call("forecast", folder, "--key", "c", "--no-report")
    assert code == 1
    assert "--key: 'c' was never seen" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"past": "none"}, "needs past targets as inputs; use --past auto"),
        ({"label_delay": 2}, "leave --label-delay out"),
        ({"task": "multiclass"}, "scores numbers, and 'y' has classes"),
    ],
)
def test_what_cannot_be_scored_is_refused(series, tmp_path, changes, message):
    if "task" in changes:
        file = tmp_path / "classes.csv"
        file.write_text("x,y\n" + "".join(f"{row},{'abc'[row % 3]}\n" for row in range(30)))
    else:
        file = series[0]
    with pytest.raises(StreamError, match=message):
        learn(tmp_path / "run", file, **{**OPTIONS, **changes})
