"""A bandit behind HTTP: decisions and rewards by id, durable to the bit, wrong input refused with a sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from natkal.cli.serve import fresh_run
from natkal.serve.service import Service
from natkal.settings.decide import DecisionSettings
from natkal.settings.serve import Limits
from natkal.settings.settings import Settings
from tests.app.serve.support import crash, make_client

SETTINGS = DecisionSettings(arms=("a", "b"), reward_kind="binary", model="linear")


def visits(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [{"age": float(rng.integers(20, 60)), "city": str(rng.choice(["Oslo", "Rome"]))} for _ in range(count)]


def pays(row: dict[str, Any], arm: str) -> int:
    return int((arm == "a") == (row["city"] == "Oslo"))


def make_bandit(folder: Path, **options: Any) -> Service:
    options = {"checkpoint_seconds": 1e9, "keep": 100} | options
    run = folder / "run"
    fresh = lambda limits: fresh_run(run, limits, Settings(targets=()), None, SETTINGS)  # noqa: E731
    service = Service(run, fresh, **options)
    service.start(warm_up=False)
    return service


def state(service: Service) -> dict[str, Any]:
    header, arrays = service.order(service.served.snapshot).result(60)
    return {"header": json.loads(json.dumps(header))} | {name: value.tobytes() for name, value in arrays.items()}


def test_it_learns_from_rewards_and_survives_a_crash_to_the_bit(tmp_path):
    service = make_bandit(tmp_path)
    client = make_client(service)
    for start in range(0, 60, 20):
        rows = visits(20, seed=start)
        told = client.post("/decide", json=[row | {"id": f"{start} {n}"} for n, row in enumerate(rows)]).json()
        decisions = told["decisions"]
        assert [decision["id"] for decision in decisions] == [f"{start} {n}" for n in range(20)]
        rewards = [
            {"id": decision["id"], "reward": pays(row, decision["arm"])}
            for row, decision in zip(rows, decisions, strict=True)
        ]
        assert client.post("/reward", json=rewards[::-1]).json()["learned"] == 20
        if start == 20:
            service.order(service.checkpoint).result(60)
    rows = visits(30, seed=7)
    late = client.post("/decide", json=rows).json()["decisions"]  # ids of the server's own
    assert np.mean([pays(row, decision["arm"]) for row, decision in zip(rows, late, strict=True)]) > 0.8
    single = client.post("/decide", json=rows[0] | {"id": 17}).json()
    assert single["id"] == "17"
    assert client.post("/reward", json={"id": 17, "reward": None}).json()["learned"] == 1  # never known
    facts = client.get("/state").json()
    assert facts["rows"]["decided"] == 91
    assert facts["ids"]["waiting"] == 30
    assert facts["arms"]["a"]["chosen"] + facts["arms"]["b"]["chosen"] == 91
    left = state(service)
    crash(service)
    again = make_bandit(tmp_path)
    assert again.replayed == 5
    assert state(again) == left
    client = make_client(again)
    assert client.post("/reward", json={"id": late[0]["id"], "reward": 1}).status_code == 200
    again.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = make_bandit(tmp_path_factory.mktemp("bandit"), limits=Limits(ids=5))
    make_client(made).post("/decide", json=visits(1)[0] | {"id": "x"})
    yield made
    made.close()


ROW = visits(1)[0]
BAD = {
    "column": ("/decide", ROW | {"shoe": 1}, 422, "row 1: column 'shoe' is unknown; the model has age, city"),
    "type": ("/decide", [ROW, ROW | {"age": "old"}], 422, "row 2: column 'age': 'old' is not a number"),
    "arm": ("/decide", ROW | {"arms": ["a", "z"]}, 422, "row 1: arm 'z' is unknown; there are a, b"),
    "arms": ("/decide", ROW | {"arms": "a"}, 422, "row 1: arms: a list of names is needed"),
    "twice": ("/decide", [ROW | {"id": "y"}] * 2, 422, "the same id stands twice in one request"),
    "id": ("/reward", {"id": "nobody", "reward": 1}, 404, "row 1: id 'nobody': no decision with this id waits"),
    "no id": ("/reward", {"reward": 1}, 422, "row 1: column 'id': a reward needs the id of its decision"),
    "no reward": ("/reward", {"id": "x"}, 422, "row 1: has no reward"),
    "value": ("/reward", {"id": "x", "reward": 2}, 422, "row 1: reward 2: must be 0 or 1"),
    "both": ("/reward", [{"id": "x", "reward": 1}] * 2, 404, "row 2: id 'x': no decision with this id waits"),
    "other": ("/learn", ROW, 409, "this run is a bandit: it takes /decide and /reward"),
    "infer": ("/v2/models/run/infer", {"inputs": []}, 409, "this run is a bandit"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_a_sentence_and_changes_nothing(service, name):
    path, body, status, words = BAD[name]
    before = state(service)
    answer = make_client(service).post(path, json=body)
    assert answer.status_code == status
    assert words in answer.json()["error"]
    assert state(service) == before


def test_a_choice_can_be_limited_and_decisions_that_wait_are_too(service):
    client = make_client(service)
    told = client.post("/decide", json=[ROW | {"arms": ["b"], "id": f"b{n}"} for n in range(8)]).json()["decisions"]
    assert {decision["arm"] for decision in told} == {"b"}
    assert {decision["probability"] for decision in told} == {1.0}
    facts = client.get("/state").json()
    assert facts["ids"]["waiting"] == 5
    assert facts["ids"]["given_up"] == 4
    assert client.post("/reward", json={"id": "b0", "reward": 1}).status_code == 404
    row = client.get("/openapi.json").json()["paths"]["/decide"]["post"]["requestBody"]["content"]
    assert {"age", "city", "arms"} <= set(row["application/x-ndjson"]["schema"]["properties"])
