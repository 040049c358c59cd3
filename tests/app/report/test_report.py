"""The report: one file that needs nothing else, and that a real browser shows without complaint."""

import html.parser
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import natkal as nk
from natkal.report import write_report
from natkal.report.charts import Axes, clipped, clipped_apart, short, ticks
from natkal.report.facts import coarser, effective_memory, spectrum
from natkal.report.targets import changes
from natkal.report.timeline import along, date_ticks
from natkal.runs import class_scores
from tests.app.support import csv_text, learn, table
from tests.browser import answer_of, needs_browser

pytestmark = pytest.mark.float64
VOID = {"meta", "link", "br"}
CHARTS = 9


class Checker(html.parser.HTMLParser):
    """Every tag closed, in order; charts and outside references counted."""

    def __init__(self):
        super().__init__()
        self.open, self.marks, self.outside = [], [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag == "svg":
            self.marks.append(int(values["data-marks"]))
        self.outside += [v for k, v in values.items() if k in ("src", "href") and not v.startswith(("data:", "#"))]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    data = folder / "<d>.csv"
    data.write_text(csv_text(table(300)) + "bad\n")
    with jax.enable_x64(True):
        return write_report(learn(folder / "run", data, learner="auto"), seconds=1.0)


def test_a_spectrum_is_positive_whatever_rounding_made_of_the_covariance():
    cov = np.diag([5e7, 1.0, -1e-4]).astype(np.float32)
    found = spectrum(cov)
    assert found is not None
    np.testing.assert_allclose(found, [5e7, np.finfo(np.float32).eps * 5e7, np.finfo(np.float32).eps * 5e7])
    assert spectrum(np.full((2, 2), np.nan)) is None
    assert spectrum(np.zeros((2, 2))) is None


def test_one_whole_file(page):
    text = page.read_text()
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert checker.outside == []
    assert not re.search(r"https?://|@import|<script", text)
    assert len(checker.marks) == CHARTS
    assert min(checker.marks) > 0
    assert "&lt;d&gt;.csv" in text
    assert "read 301 = learned 300 (99.7%) + rejected 1 (0.3%) + skipped 0" in text
    assert "prefers-color-scheme:dark" in text
    assert len(text) < 200_000


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_it(page, tmp_path, width):
    """Opens, logs no error, every chart is drawn inside the window, nothing sticks out sideways."""
    probe = tmp_path / "probe.html"
    script = """<script>
    window.problems = []; window.onerror = (text) => problems.push(text);
    addEventListener('load', () => {
      document.querySelectorAll('details').forEach((folded) => { folded.open = true; });
      const charts = [...document.querySelectorAll('svg')].map((chart) => chart.getBoundingClientRect());
      const answer = {problems, charts: charts.length, drawn: charts.filter((box) => box.width > 200 && box.height > 50
        && box.right <= innerWidth + 1).length, sideways: document.documentElement.scrollWidth - innerWidth};
      document.body.setAttribute('data-answer', JSON.stringify(answer));
    });</script>"""
    probe.write_text(page.read_text().replace("</head>", script + "</head>"))
    seen = answer_of(probe, width, tmp_path / "profile")
    assert seen["problems"] == []
    assert seen["charts"] == seen["drawn"] == CHARTS
    assert seen["sideways"] <= 0


def test_ticks_are_round_and_inside():
    for low, high in ((0, 1), (-3.2, 17.9), (0.001, 0.0042), (12_000, 987_654), (5.0, 5.1)):
        found = ticks(low, high)
        assert 2 <= len(found) <= 11
        assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in found)
    assert [short(value) for value in (0.25, 1200, 45_000, 2_500_000, 1e-6)] == ["0.25", "1,200", "45k", "2.5M", "1e-6"]


def test_a_chart_keeps_points_that_are_not_numbers_out():
    axes = Axes((0, 1), (0, 1))
    axes.line([0, 0.5, 1], [0, float("nan"), 1], "own")
    axes.dots([0.1, float("inf")], [0.2, 0.3], "dot")
    assert axes.marks == 2
    assert "nan" not in axes.svg("t")


def test_effective_memory_is_one_over_the_learning_rate():
    """Prop. 3: 1 - lambda = eta_{t-1}/eta_t - eta_{t-1}, from eta_0 = 1."""
    eta, fading = 1.0, 0.02
    for step in range(1, 200):
        eta = eta / (1 - fading + eta)
        np.testing.assert_allclose(effective_memory(np.array([step]), fading)[0], 1 / eta, rtol=1e-10)


def test_coarser_windows_keep_the_mean():
    rng = np.random.default_rng(0)
    rows = rng.integers(1, 100, size=500).astype(float)
    series = {"row": np.cumsum(rows), "rows": rows, "log_loss": rng.normal(size=500), "time": 7 * np.cumsum(rows)}
    merged = coarser(series)
    np.testing.assert_array_equal(merged["time"], 7 * merged["row"])
    assert len(merged["row"]) <= 64
    assert merged["rows"].sum() == rows.sum()
    np.testing.assert_allclose(
        np.average(merged["log_loss"], weights=merged["rows"]), np.average(series["log_loss"], weights=rows)
    )


def test_the_area_under_the_curve_and_the_scores_of_a_class():
    """Against scikit-learn's definitions, counted pair by pair."""
    rng = np.random.default_rng(0)
    score = rng.integers(0, 200, size=300) / 200 + 0.001
    label = (rng.uniform(size=300) < score).astype(float)
    table, confusion = class_scores.empty_scores(), class_scores.empty_confusion()
    class_scores.count_scores(table, label, score)
    pairs = score[label == 1][:, None] - score[label == 0][None]
    np.testing.assert_allclose(class_scores.auc(table), np.mean((pairs > 0) + 0.5 * (pairs == 0)), rtol=1e-12)
    guess = (score > 0.5).astype(float)
    class_scores.count_confusion(confusion, label, guess)
    precision, recall = class_scores.precision_recall(confusion[:2, :2])
    np.testing.assert_allclose(precision[1], label[guess == 1].mean())
    np.testing.assert_allclose(recall[1], guess[label == 1].mean())


def test_a_jump_of_the_loss_is_marked_once():
    calm = 0.3 + 0.01 * np.random.default_rng(0).normal(size=40)
    assert len(changes(calm)) == 0
    assert changes(np.concatenate([calm, 0.3 + calm])).tolist() == [40]


def test_names_that_are_cut_stay_apart():
    names = [f"a_rather_long_name_of_a_column_{number}" for number in (1, 2)]
    assert len({clipped(name) for name in names}) == 2
    assert all(len(clipped(name)) <= 20 for name in names)
    alike = ["the_same_beginning_one_the_same_end", "the_same_beginning_two_the_same_end", "short"]
    shown = clipped_apart(alike, 12)
    assert len(set(shown)) == 3
    assert all(len(label) <= 12 for label in shown)


@pytest.mark.parametrize("days", [1e-3, 0.2, 3, 40, 300, 2000, 30_000])
def test_ticks_of_times_are_inside_apart_and_not_too_many(days):
    low = 1.4e9
    found = date_ticks(low, low + 86400 * days)
    places, texts = zip(*found, strict=True)
    assert 2 <= len(found) <= 11
    assert low <= min(places) <= max(places) <= low + 86400 * days
    assert len(set(texts)) == len(texts)
    assert all(len(text) <= 8 for text in texts)


def test_times_make_the_axis_only_where_they_are_known_and_in_order():
    rows, times = np.arange(1, 4), np.array([0.0, 86400.0, 200_000.0])
    assert along(rows, times).dates
    assert along(rows, times).label == "time, 1970"
    for bad in (times[::-1], np.full(3, 5.0), np.array([0.0, np.nan, 1.0]), None):
        assert along(rows, bad).places.tolist() == [1, 2, 3]
        assert along(rows, bad).ends == (0, 3)


def test_relevance_of_a_walk_and_the_times_of_its_rows(tmp_path):
    """A walk y_t = y_{t-1} + x_t: x matters most, if each row is judged beside the row before it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    y = np.cumsum(x) + 50 + 0.1 * rng.normal(size=300)
    days = np.datetime64("2024-01-01") + np.arange(300)
    rows = [{"day": str(day), "x": a, "y": b} for day, a, b in zip(days, x.tolist(), y.tolist(), strict=True)]
    run = nk.learn(rows, target="y", learner="single", model="linear", past="1", progress=False)
    assert run.relevance["x"] > 0.7 > run.relevance["day"]
    assert run.history["row"].tolist() == [64, 128, 192, 256, 300]
    assert run.history["time"].astype("datetime64[D]").tolist() == days[[63, 127, 191, 255, 299]].tolist()
    text = run.report(tmp_path / "report.html").read_text()
    assert "time, 2024" in text
    assert "at 2024-03-04" in text
