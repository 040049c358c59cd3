"""Bad input gets 4xx with the sentence of the command line and changes nothing; limits, tokens, other routes."""

import dataclasses
import json
import threading

import pytest

from natkal.errors import StreamError
from natkal.serve import rows as serve_rows
from natkal.serve.http import Access
from natkal.serve.openapi import ROUTES
from natkal.serve.requests import KINDS
from natkal.serve.server import make_access
from natkal.settings.serve import Limits
from tests.app.serve.support import SETTINGS, as_rows, make_client, make_service, served_state, table, without

ROW = table(1)[0]
PLAIN = without(ROW, "y")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = make_service(tmp_path_factory.mktemp("served"), limits=Limits(body_bytes=20_000, rows=50, keys=5))
    make_client(made).post("/learn", json=table(20))
    yield made
    made.close()


BAD = {
    "not a number": (ROW | {"a": "abc"}, "row 1: column 'a': 'abc' is not a number"),
    "nested": (ROW | {"a": [1]}, "row 1: column 'a': [1] is not a number"),
    "category": (ROW | {"colour": {}}, "row 1: column 'colour': {} is not a category"),
    "second row": ([ROW | {"colour": "violet"}, ROW | {"a": "x"}], "row 2: column 'a': 'x' is not a number"),
    "unknown column": (ROW | {"z": 1}, "row 1: column 'z' is unknown; the model has a, b, colour, y"),
    "absent": (without(ROW, "b"), "row 1: has no column b, which the model was trained on; null says it is missing"),
    "no target": (PLAIN, "row 1: has no y to learn from"),
    "target is null": ([ROW, ROW | {"y": None}], "row 2: has no y to learn from"),
    "list of numbers": ([1, 2], "row 1: is a JSON int, not an object"),
    "text": ("abc", "the body is a JSON str, not a row (an object) or a list of rows"),
    "nothing": ([], "the body holds no row"),
    "id of a wrong type": (PLAIN | {"id": [1]}, "the id [1] is neither text nor a whole number"),
    "id too long": (PLAIN | {"id": "x" * 300}, "an id has 1 to 200 characters, this one 300"),
    "id twice": ([{"id": 1, "y": "no"}, {"id": "1", "y": "no"}], "the same id stands twice in one request"),
}
TEXTS = {
    b'{"a": NaN}': "NaN is not a JSON number",
    b'{"a": 1, "a": 2}': "the key 'a' stands twice in one object",
    b'[{"a": 1, "a": 2}]': "the key 'a' stands twice in one object",
    b"{": "the row is not JSON: Expecting property name enclosed in double quotes at character 2",
    b"\xff": "the row is not UTF-8 text (invalid start byte)",
    b"": "the body holds no row",
    b'{"a": 1}\n{"a": }\n': "row 2: the row is not JSON: Expecting value at character 7",
    b"[" * 10_000: "the row is nested too deeply",
}


def test_bad_rows_are_refused_whole_and_change_nothing(service):
    client = make_client(service)
    before = served_state(service)
    for name, (value, sentence) in BAD.items():
        answer = client.post("/learn", json=value)
        assert (answer.status_code, answer.json()) == (422, {"error": sentence}), name
    for text, sentence in TEXTS.items():
        answer = client.post("/learn", content=text)
        assert (answer.status_code, answer.json()) == (422, {"error": sentence}), text[:20]
    assert served_state(service) == before


def test_the_sentence_is_the_one_of_the_rejects(service):
    client = make_client(service)
    for bad in (ROW | {"a": "1,5"}, ROW | {"b": 10**400}, ROW | {"colour": [1, 2]}):
        rejects = service.served.session.encoder.encode(as_rows([bad]), grow=False).rejects
        assert client.post("/learn", json=bad).json()["error"] == f"row 1: {rejects[0].reason}"


def test_a_body_with_times_of_day_is_parsed_once(monkeypatch):
    """The careful reader, which sees that a key stands twice, is asked only where one may."""
    body = b'[{"t": "2026-01-01T10:00:00", "a:b": 1}, {"t": "2026-01-01T10:00:01", "a:b": 2}]'
    whole = serve_rows.read_rows(body, 10)
    monkeypatch.setattr(serve_rows, "parse", lambda text: pytest.fail("parsed twice"))
    assert serve_rows.read_rows(body, 10) == whole
    monkeypatch.undo()
    with pytest.raises(serve_rows.Refused, match="stands twice"):
        serve_rows.read_rows(b'{"t": "10:00", "t": "11:00", "a": 1}', 10)


def test_fixed_classes(tmp_path):
    service = make_service(tmp_path, dataclasses.replace(SETTINGS, classes=("no", "yes")))
    answer = make_client(service).post("/learn", json=[ROW, ROW | {"y": "maybe"}])
    assert answer.json() == {"error": "row 2: column 'y': 'maybe' is not one of the 2 classes (no, yes)"}
    service.close()


def grouped(service, *requests):
    """Requests that the writer takes together: their answers, in order."""
    client, answers = make_client(service), [None] * len(requests)
    going_on, go_on = threading.Event(), threading.Event()
    service.order(lambda: (going_on.set(), go_on.wait(60)))
    assert going_on.wait(60)

    def post(place, path, value):
        answers[place] = client.post(path, json=value)

    threads = []
    for place, (path, value) in enumerate(requests):
        waiting = service.waiting_rows
        threads.append(threading.Thread(target=post, args=(place, path, value)))
        threads[-1].start()
        while service.waiting_rows == waiting:
            pass
    go_on.set()
    for thread in threads:
        thread.join()
    return answers


def test_a_key_too_many_adds_nothing_and_a_group_does_not_pass_the_limit(tmp_path):
    schema = tmp_path / "keyed.jsonl"
    schema.write_text("".join(json.dumps(row | {"k": f"k{at % 2}"}) + "\n" for at, row in enumerate(table(40))))
    service = make_service(tmp_path, dataclasses.replace(SETTINGS, key="k"), schema, limits=Limits(keys=2))
    client = make_client(service)
    assert client.post("/learn", json=ROW | {"k": "first"}).status_code == 200
    before = served_state(service)
    new = ROW | {"colour": "violet", "y": "maybe"}
    answer = client.post("/learn", json=[new | {"k": "second"}, new | {"k": "third"}])
    assert answer.json() == {"error": "1 keys are known; no more than 2 are taken"}
    assert served_state(service) == before
    assert "maybe" not in service.served.session.encoder.classes["y"]
    answers = grouped(service, ("/learn", ROW | {"k": "second"}), ("/learn", ROW | {"k": "third"}))
    assert [answer.status_code for answer in answers] == [200, 422]
    assert list(service.served.session.learner.keys) == ["first", "second"]
    service.close()


def test_a_label_in_the_group_of_its_row(service):
    """The row is predicted, then learned, as if the two had come one by one."""
    client = make_client(service)
    asked, learned = grouped(
        service, ("/predict", PLAIN | {"id": "in a group"}), ("/learn", {"id": "in a group", "y": "no"})
    )
    assert (asked.status_code, learned.status_code) == (200, 200)
    assert asked.json()["id"] == "in a group"
    assert client.post("/learn", json={"id": "in a group", "y": "no"}).status_code == 404


def test_limits(service):
    client = make_client(service)
    answer = client.post("/learn", json=[ROW] * 51)
    assert (answer.status_code, answer.json()["error"]) == (413, "51 rows in one request; at most 50 are taken")
    answer = client.post("/learn", content=b" " * 20_001)
    assert (answer.status_code, answer.headers["connection"]) == (413, "close")

    async def parts():
        for _ in range(2):
            yield b" " * 15_000

    answer = client.post("/learn", content=parts())
    assert (answer.status_code, answer.json()["error"]) == (413, "the body is larger than 20,000 bytes")


def test_rows_that_wait_are_limited_and_what_timed_out_is_not_learned(tmp_path):
    limits = Limits(waiting_rows=2, seconds=0.5)
    service = make_service(tmp_path, limits=limits)
    client = make_client(service)
    client.post("/learn", json=ROW)
    going_on, go_on = threading.Event(), threading.Event()
    service.order(lambda: (going_on.set(), go_on.wait(60)))
    assert going_on.wait(60)
    answers = []
    waiting = [threading.Thread(target=lambda: answers.append(client.post("/learn", json=ROW))) for _ in range(2)]
    for thread in waiting:
        thread.start()
    while service.waiting_rows < 2:
        pass
    full = client.post("/learn", json=ROW)
    assert (full.status_code, full.headers["retry-after"]) == (429, "1")
    assert full.json()["error"] == "2 rows wait to be learned; try again later"
    for thread in waiting:
        thread.join()
    assert [answer.status_code for answer in answers] == [429, 429]
    go_on.set()
    while service.waiting_rows:
        pass
    assert client.post("/learn", json=ROW).json() == {"learned": 1, "rows": 2}
    service.close()


def test_ids_beyond_the_limit_give_way_oldest_first(tmp_path):
    service = make_service(tmp_path, limits=Limits(ids=2))
    client = make_client(service)
    for number in range(3):
        client.post("/predict", json=PLAIN | {"id": number})
    assert client.get("/state").json()["ids"] == {"column": "id", "waiting": 2, "given_up": 1}
    assert client.post("/learn", json={"id": 0, "y": "no"}).status_code == 404
    assert client.post("/learn", json={"id": 1, "y": "no"}).status_code == 200
    service.close()


def test_a_token_and_who_may_ask_without_one(service, tmp_path):
    token = tmp_path / "token"
    token.write_text("a-token-of-some-length\n")
    client = make_client(service, make_access("0.0.0.0", token, no_auth=False))
    assert client.get("/state").status_code == 401
    assert client.post("/learn", json=ROW, headers={"authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/state", headers={"authorization": "Bearer a-token-of-some-length"}).status_code == 200
    assert [client.get(path).status_code for path in ("/healthz", "/readyz", "/", "/v2/health/live")] == [200] * 4
    token.write_text("short")
    with pytest.raises(StreamError, match="at least 16 characters"):
        make_access("0.0.0.0", token, no_auth=False)
    with pytest.raises(StreamError, match="others could reach the learner"):
        make_access("0.0.0.0", None, no_auth=False)
    assert make_access("::1", None, no_auth=False) == make_access("localhost", None, no_auth=False) == Access()
    client = make_client(service)
    assert client.post("/learn", json=ROW, headers={"host": "evil.example"}).status_code == 403
    assert client.post("/learn", json=ROW, headers={"origin": "http://evil.example"}).status_code == 403
    assert client.get("/state", headers={"origin": "http://testserver"}).status_code == 200


def test_the_other_routes(service):
    client = make_client(service)
    paths = client.get("/openapi.json").json()["paths"]
    app = client.app
    assert {path for _, path, _, _ in ROUTES} == set(paths) == app._routes | {f"/{kind}" for kind in KINDS}
    client.post("/learn", json=ROW)
    text = client.get("/metrics").text
    learned = next(line for line in text.splitlines() if line.startswith("natkal_rows_learned_total"))
    assert float(learned.split()[1]) == client.get("/state").json()["rows"]["learned"]
    assert 'natkal_requests_total{route="/learn",status="200"} 1.0' in text
    for path in ("/decide", "/reward"):
        answer = client.post(path, json={})
        assert (answer.status_code, "not a bandit" in answer.json()["error"]) == (409, True)
    assert client.get("/v2/models/run").json()["inputs"][0]["name"] == "a"
    assert client.get("/v2/models/other").status_code == 404
    assert client.get("/nowhere").json() == {"error": "there is no such path"}
    assert client.get("/learn").status_code == client.get("/state/").status_code == 404
    assert client.request("DELETE", "/state").status_code == 405


def test_before_it_is_ready(service):
    client = make_client(service)
    client.app.service = None
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 503
    answer = client.post("/predict", json=PLAIN)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
