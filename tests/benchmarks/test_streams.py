"""What the benchmark of streams rests on: its data, its scores, its laws, and what it keeps of rivals."""

import json

import numpy as np
import pytest
from benchmarks.streams import attempt, forecasters, laws, ours, rivals
from benchmarks.streams.data import GROUPS, save, stream
from benchmarks.streams.generated import FRIEDMAN_ROWS, friedman
from benchmarks.streams.scores import Forecast, after_drifts, calibration_error, errors, log_loss, scores
from benchmarks.streams.stream import Stream, of_rows

from benchmarks import streams
from tests.benchmarks.made_up import made_up


def test_scores_by_hand() -> None:
    probs = np.array([[0.8, 0.2], [0.8, 0.2], [0.4, 0.6], [0.9, 0.1]])
    targets = np.array([0, 1, 1, 0])
    np.testing.assert_allclose(calibration_error(probs, targets), (abs(1 - 1.6) + abs(1 - 0.6) + abs(1 - 0.9)) / 4)
    loss = np.full(6000, 0.3)
    loss[3000:3400] = 1.3
    found = after_drifts(-loss, (3000,))
    np.testing.assert_allclose(found["excess_after_drift"], 400)
    assert 490 <= found["reaction_rows"] <= 500
    np.testing.assert_allclose(found["settled_loss"], 0.3)
    assert errors(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 0.0])) == {
        "rmse": np.sqrt(10 / 3),
        "mae": 4 / 3,
        "rmedse": 1.0,
    }


def test_rows_before_the_first_scored_one_do_not_count() -> None:
    found = made_up("regression")
    means = np.where(np.arange(60) < 2, 1e9, found.targets)
    said = Forecast(log_prob=np.where(np.arange(60) < 2, -1e9, 0.0), mean=means)
    assert scores(said, found, 2) == {"log_loss": 0.0, "rmse": 0.0, "mae": 0.0, "rmedse": 0.0}


def test_laws_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    mean, spread, targets = np.array([1.0, 0.0]), np.array([2.0, 0.5]), np.array([3.0, -1.0])
    normal = laws.gaussian(mean, spread, targets)
    np.testing.assert_allclose(normal.log_prob, stats.norm(mean, spread).logpdf(targets))
    np.testing.assert_allclose(normal.below, stats.norm(mean, spread).cdf(targets))
    np.testing.assert_allclose(normal.width, np.diff(stats.norm(mean, spread).interval(0.95), axis=0)[0], rtol=1e-6)
    student = laws.student(mean, spread, 3.0, targets)
    np.testing.assert_allclose(student.log_prob, stats.t(3.0, mean, spread).logpdf(targets))
    np.testing.assert_allclose(student.width, np.diff(stats.t(3.0, mean, spread).interval(0.95), axis=0)[0])


def test_rivals_get_the_best_law_around_what_they_say() -> None:
    """A certain and wrong forecaster gets a uniform share; a mean gets a law no worse than the best constant spread."""
    sure = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    found = laws.with_share(sure, np.array([0, 0, 1, 1]))
    assert np.isfinite(found.log_prob).all()
    np.testing.assert_allclose(found.probs[2], 0.5)
    numbers = made_up("regression")
    means = numbers.targets + np.linspace(0.1, 3, len(numbers.targets))
    spread = np.sqrt(np.mean((means - numbers.targets) ** 2))
    constant = laws.gaussian(means, np.full_like(means, spread), numbers.targets)
    assert log_loss(laws.around(means, numbers)) <= log_loss(constant)


def test_a_table_is_written_as_it_is(tmp_path) -> None:
    rows = [({"word": "a", 1: 0.5}, 3.0), ({"word": "b", 1: float("nan")}, 4.0)]
    columns, targets = of_rows(rows)
    made = Stream("made", "regression", columns, np.array(targets))
    made.write(tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text() == "word,x1,y\na,0.5,3.0\nb,,4.0\n"
    np.testing.assert_array_equal(made.inputs, [[1, 0, 0.5], [0, 1, np.nan]])
    labelled = Stream("made", "classification", {}, np.array([1, 0]), labels=("no", "yes"))
    labelled.write(tmp_path / "labels.csv")
    assert (tmp_path / "labels.csv").read_text() == "y\nyes\nno\n"


def test_prepared_streams_are_the_streams(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("NATKAL_STREAMS", raising=False)
    here = [stream(name) for name in ("digits", "sunspots")]
    save(str(tmp_path / "streams.npz"), ["digits", "sunspots"])
    monkeypatch.setenv("NATKAL_STREAMS", str(tmp_path / "streams.npz"))
    for one in here:
        there = stream(one.name)
        assert there.digest() == one.digest()
        assert (there.sizes, there.period, there.kind) == (one.sizes, one.period, one.kind)
    assert here[0].sizes == (64, 20, 10)


def test_friedman_has_noise_of_one() -> None:
    found = friedman()
    x = found.inputs
    truth = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    assert x.shape == (FRIEDMAN_ROWS, 10)
    np.testing.assert_allclose((found.targets - truth).std(), 1.0, atol=0.02)


def test_forecasters_know_only_the_past() -> None:
    """A later target changes no earlier forecast; the seasonal one repeats the period before."""
    values = np.arange(20.0) ** 2
    one = Stream("one", "regression", {}, values, period=5)
    other = Stream("one", "regression", {}, np.append(values[:-1], 1e6), period=5)
    for forecast in (forecasters._running_mean, lambda s: forecasters._last(s, 5), lambda s: forecasters._last(s, 1)):
        np.testing.assert_array_equal(forecast(one), forecast(other))
    np.testing.assert_array_equal(forecasters._last(one, 5)[5:], values[:-5])
    np.testing.assert_allclose(forecasters._running_mean(one)[10], values[:10].mean())


def test_the_cache_keeps_settings_and_the_best_of_each_score(tmp_path, monkeypatch) -> None:
    """A second run scores nothing again; other rows start again; a setting that is best by no score is dropped."""
    found = made_up("regression")
    runs = []

    def tried(shift: float, scale: float):
        def run() -> Forecast:
            runs.append(shift)
            return laws.gaussian(found.targets + shift, np.full(60, scale), found.targets)

        return run

    monkeypatch.setattr(rivals, "KEPT", tmp_path / "rivals.json")
    settings = {"good": tried(0.1, 0.1), "blurred": tried(0.05, 9.0), "bad": tried(9.0, 0.1)}
    monkeypatch.setattr(
        rivals, "attempts", lambda s: (("numpy", attempt.Attempt("rival", *one)) for one in settings.items())
    )
    folder = tmp_path / "cache"
    assert [rivals.run(found, folder, print) for _ in range(2)] == [3, 3]
    assert len(runs) == 3
    rivals.condense(folder)
    kept = json.loads((tmp_path / "rivals.json").read_text())["streams"]["regression"]
    assert kept["digest"] == found.digest()
    assert [record["setting"] for record in kept["methods"]["rival"]] == ["good", "blurred"]
    best = rivals.best("regression", "rmse")
    assert best is not None
    assert (best["setting"], best["rmse"]) == ("blurred", 0.05)
    assert rivals.run(found.head(50), folder, print) == 3
    assert len(runs) == 6


def test_the_rivals_that_are_kept_are_of_these_rows(monkeypatch) -> None:
    monkeypatch.delenv("NATKAL_STREAMS", raising=False)
    kept = rivals.kept()["streams"]
    assert set(kept) <= {name for group in GROUPS.values() for name in group}
    for name in {"digits", "sunspots", "friedman"} & set(kept):
        assert kept[name]["digest"] == stream(name).digest(), name


def test_intervals_are_read_from_predictions(tmp_path) -> None:
    lines = ["line,observed,predicted,low_90,high_90", "2,1,,,", "3,9,9,9,9", *2 * ["4,1,2,0,3", "5,5,2,0,3"]]
    (tmp_path / "said.csv").write_text("\n".join(lines) + "\n")
    found = ours.number_scores(tmp_path / "said.csv", 2)
    assert (found["mae"], found["coverage_90"], found["width_90"]) == (2.0, 0.5, 3.0)
    assert found["quarters_90"] == [1.0, 0.0, 1.0, 0.0]


def test_a_group_has_a_table_for_each_score() -> None:
    """natkal is ahead where its score is at least as good as the best rival's; a failed run has its reason."""
    best = {"method": "rival", "setting": "", "log_loss": 0.5, "accuracy": 0.9}
    row = {"stream": "digits", "rows": 60, "options": "", "seconds": 1.0, "log_loss": 0.4, "accuracy": 0.8}
    row["rivals"] = {"log_loss": best, "accuracy": best}
    failed = {"stream": "phishing", "rows": 60, "options": "", "seconds": 1.0, "failed": "no column is left"}
    (_, refused, _), (title, _, _), (other, lines, columns) = streams.tables({"tables": {"rows": [row, failed]}})
    assert refused == [failed]
    assert title.endswith("ahead on 1 of 1")
    assert other.endswith("ahead on 0 of 1")
    assert set(columns) <= set(lines[0])
