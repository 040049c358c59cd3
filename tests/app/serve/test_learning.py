"""What is served is what `natkal learn` makes of the same rows, bit for bit, whatever the requests and their order."""

import dataclasses
import json
import threading

import numpy as np
import pytest

from natkal.serve.rows import read_rows
from tests.app.serve.support import (
    SETTINGS,
    alone,
    as_rows,
    make_client,
    make_service,
    served_state,
    state,
    table,
    without,
)

ROWS = table(90)


@pytest.fixture
def service(tmp_path):
    made = make_service(tmp_path)
    yield made
    if not made.failed:
        made.close()


def test_rows_one_by_one_in_lists_and_in_lines(service, tmp_path):
    client = make_client(service)
    told = []
    for row in ROWS[:20]:
        told.append(client.post("/predict_learn", json=row).json())
    told += client.post("/predict_learn", json=ROWS[20:60]).json()["predictions"]
    lines = "\n".join(json.dumps(row) for row in ROWS[60:]) + "\n"
    answer = client.post("/learn", content=lines, headers={"content-type": "application/x-ndjson"})
    assert answer.json() == {"learned": 30, "rows": 90}
    session = alone(tmp_path / "alone", ROWS)
    assert served_state(service) == state(session)
    spread = session.metrics.columns(session.metrics.recent, 0).spread
    np.testing.assert_array_equal([one["p(yes)"] for one in told], spread[:60])
    assert all(one["predicted"] == ("yes" if one["p(yes)"] > one["p(no)"] else "no") for one in told)


def test_concurrent_requests_are_learned_in_the_order_of_the_log(service, tmp_path):
    client = make_client(service)

    def send(part):
        for row in part:
            assert client.post("/learn", json=row).status_code == 200

    threads = [threading.Thread(target=send, args=(ROWS[start::6],)) for start in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = [row for record in service.versions.records_after(1, 0) for row in read_rows(record.body, 1)[0]]
    assert sorted(map(str, rows)) == sorted(map(str, ROWS))
    assert served_state(service) == state(alone(tmp_path / "alone", rows))


def test_a_label_that_comes_under_its_id_is_learned_with_the_inputs_of_then(service, tmp_path):
    """With no row in between, it is what a stream of the unlabelled row and the labelled one teaches."""
    client = make_client(service)
    assert client.post("/learn", json=ROWS[:5]).status_code == 200
    asked = client.post("/predict", json={"id": 7} | without(ROWS[5], "y")).json()
    assert asked["id"] == "7"
    assert client.get("/state").json()["ids"] == {"column": "id", "waiting": 1, "given_up": 0}
    told = client.post("/predict_learn", json={"id": "7", "y": ROWS[5]["y"]}).json()
    assert told["p(yes)"] == pytest.approx(asked["p(yes)"], rel=1e-2)
    again = client.post("/learn", json={"id": "7", "y": "yes"})
    assert (again.status_code, again.json()["error"]) == (404, "row 1: the id '7' is not waiting for its label")
    session = alone(tmp_path / "alone", [*ROWS[:5], without(ROWS[5], "y"), ROWS[5]])
    assert served_state(service) == state(session)


def test_the_past_of_a_held_row_is_the_one_it_was_predicted_with(service):
    client = make_client(service)
    client.post("/learn", json=ROWS[0] | {"y": "no"})
    row = without(ROWS[5], "y")
    client.post("/predict", json=[row | {"id": "first"}])
    client.post("/learn", json=ROWS[1] | {"y": "yes"})
    held = service.served.session.held["first"]
    assert held[0] == -1.0  # the target before it was no
    assert held[1:].tolist() == service.served.work.columns.encode([row]).inputs[0].tolist()


@pytest.mark.slow
def test_a_class_that_comes_later_is_taken_on(tmp_path):
    service = make_service(tmp_path)
    client = make_client(service)
    client.post("/learn", json=ROWS[:9])
    assert client.post("/predict_learn", json=ROWS[9] | {"y": "maybe"}).status_code == 200
    shown = client.post("/predict", json=without(ROWS[10], "y")).json()
    assert list(shown) == ["predicted", "p(no)", "p(yes)", "p(maybe)"]
    assert abs(sum(list(shown.values())[1:]) - 1) < 1e-12
    rows = [*ROWS[:9], ROWS[9] | {"y": "maybe"}]
    assert served_state(service) == state(alone(tmp_path / "alone", rows[:9], rows[9:]))
    left = state(service.served.session)
    service.close()
    first = service.versions.path(1)
    for number in service.versions.numbers()[1:]:
        service.versions.path(number).unlink()
    assert first.exists()
    again = make_service(tmp_path)  # all requests in one block
    assert again.replayed == 2
    assert state(again.served.session) == left
    again.close()


def test_predictions_change_nothing_and_wait_for_nobody(service):
    client = make_client(service)
    client.post("/learn", json=ROWS[:30])
    before = served_state(service)
    asked = [without(row, "y") | {"colour": f"new {number}"} for number, row in enumerate(ROWS[30:40])]
    shown = client.post("/predict", json=asked).json()
    going_on, go_on = threading.Event(), threading.Event()
    service.order(lambda: (going_on.set(), go_on.wait(60)))
    assert going_on.wait(60)  # the writer is busy from here on
    assert client.post("/predict", json=asked).json() == shown
    assert client.get("/state").json()["rows"]["learned"] == 30
    go_on.set()
    assert served_state(service) == before
    assert shown["predictions"][0] != client.post("/predict_learn", json=ROWS[40]).json()


def test_predict_is_what_predict_learn_says_before_it_learns(service):
    client = make_client(service)
    client.post("/learn", json=ROWS[:30])
    asked = client.post("/predict", json=without(ROWS[30], "y")).json()
    told = client.post("/predict_learn", json=ROWS[30]).json()
    assert asked.pop("predicted") == told.pop("predicted")
    assert asked == pytest.approx(told, rel=1e-12)


@pytest.mark.slow
def test_numbers_come_with_intervals(tmp_path):
    rows = [without(row, "y") | {"y": 2 * row["a"] - row["b"]} for row in table(60)]
    schema = tmp_path / "numbers.jsonl"
    schema.write_text("".join(json.dumps(row) + "\n" for row in rows))
    service = make_service(tmp_path, dataclasses.replace(SETTINGS, past="none"), schema)
    client = make_client(service)
    client.post("/learn", json=rows)
    told = client.post("/predict_learn", json=rows[0]).json()
    assert told["low_90"] < told["predicted"] < told["high_90"]
    asked = client.post("/predict", json=without(rows[0], "y")).json()
    assert abs(asked["predicted"] - rows[0]["y"]) < 0.1
    answer = client.post(
        "/v2/models/run/infer",
        json={
            "id": "x",
            "inputs": [
                {"name": name, "shape": [2], "datatype": "FP64", "data": [rows[0][name], rows[1][name]]}
                for name in ("a", "b", "colour")
            ],
        },
    ).json()
    assert (answer["model_name"], answer["id"]) == ("run", "x")
    outputs = {tensor["name"]: tensor["data"] for tensor in answer["outputs"]}
    assert [outputs[name][0] for name in ("predicted", "low_90", "high_90")] == [
        asked[name] for name in ("predicted", "low_90", "high_90")
    ]
    service.close()


def test_figures_are_those_of_the_session(service, tmp_path):
    """/state counts the open window too; closing it on a run of `natkal learn` gives the same."""
    client = make_client(service)
    client.post("/predict_learn", json=ROWS)
    told = client.get("/state").json()
    session = alone(tmp_path / "alone", ROWS)
    session.metrics.close()
    summary = session.metrics.parts[0].summary()
    target = told["targets"][0]
    assert target["scored"] == summary["rows"] == 90
    for name in ("log_loss", "baseline_log_loss", "last_log_loss", "accuracy"):
        assert target[name] == summary[name]
    assert told["series"]["row"][-1] == 90
    assert len(target["last"]) == 60
    assert told["effective_memory"] == pytest.approx(90, rel=0.05)
    assert as_rows(ROWS).read == told["rows"]["read"]
