"""The live page shows the numbers of /state, needs nothing from elsewhere, and opens without a word in a browser."""

import json
import re

import pytest

from natkal.serve.page import page
from tests.app.serve.support import make_client, make_service, table
from tests.browser import answer_of, needs_browser


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What /state says of a served run."""
    service = make_service(tmp_path_factory.mktemp("page"))
    client = make_client(service)
    client.post("/predict_learn", json=table(60))
    client.post("/learn", json={"a": 1})
    found = client.get("/state").json()
    service.close()
    return found


def test_every_number_of_the_page_is_one_of_the_state(told):
    for path in re.findall(r'data-path="([^"]+)"', page()):
        value = told
        for name in path.split("."):
            assert name in value, path
            value = value[name]


def test_nothing_comes_from_elsewhere():
    text = page()
    assert not re.findall(r"""(?:src|href)=["'](?!data:|/state)""", text)
    assert set(re.findall(r"https?://[^\s\"'`]+", text)) == {"http://www.w3.org/2000/svg"}
    assert ".innerHTML" not in text  # names of columns and classes are only ever text


def test_an_event_is_the_state(tmp_path):
    """The stream that the page follows sends what /state says, and ends when the server does."""
    service = make_service(tmp_path)
    client = make_client(service)
    client.post("/learn", json=table(8))
    client.app.ending.set()
    answer = client.get("/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text == "event: end\ndata: {}\n\n"
    service.close()


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_the_numbers_of_the_state(told, tmp_path, width):
    probe = tmp_path / "probe.html"
    script = f"""
    window.problems = []; window.onerror = (text) => problems.push(text);
    show({json.dumps(told)});
    const raw = (name) => Object.fromEntries([...document.querySelectorAll(`[data-${{name}}]`)].map(
      (node) => [node.dataset[name], node.dataset.raw]));
    const shown = raw("path"), figures = raw("figure");
    const charts = [...document.querySelectorAll("svg")].map((chart) => chart.getBoundingClientRect());
    document.body.setAttribute("data-answer", JSON.stringify({{problems, shown, figures, charts: charts.length,
      drawn: charts.filter((box) => box.width > 200 && box.height > 25 && box.right <= innerWidth + 1).length,
      sideways: document.documentElement.scrollWidth - innerWidth}}));
    """
    probe.write_text(page().replace("\nfollow();\n", script))
    seen = answer_of(probe, width, tmp_path / "profile")
    assert seen["problems"] == []
    assert seen["charts"] == seen["drawn"] >= 4
    assert seen["sideways"] <= 0
    for path, raw in seen["shown"].items():
        value = told
        for name in path.split("."):
            value = value[name]
        assert (float(raw) if raw else None) == value, path
    for name, raw in seen["figures"].items():
        assert float(raw) == told["targets"][0][name]
