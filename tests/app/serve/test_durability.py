"""Nothing that was acknowledged is lost: the log is replayed over the last checkpoint, and checkpoints are kept."""

import json
import os
import signal
import subprocess
import sys
import urllib.request

import numpy as np
import pytest

from natkal.errors import StreamError
from natkal.runs import checkpoint
from natkal.storage.journal import Journal, Record, read_records
from natkal.tables.engine.batch import Pending
from natkal.tables.engine.live_table import LiveTable
from tests.app.serve.support import (
    alone,
    crash,
    first_rows,
    make_client,
    make_service,
    served_state,
    state,
    table,
    without,
)

ROWS = table(60)


def test_what_was_acknowledged_is_there_after_a_crash(tmp_path):
    """A service that is never closed leaves what a killed one does: its log, and checkpoints as far as they came."""
    first = make_service(tmp_path)
    client = make_client(first)
    client.post("/learn", json=ROWS[:10])
    client.post("/predict", json=without(ROWS[10], "y") | {"id": "x"})
    first.order(first.checkpoint).result(60)
    client.post("/learn", json=ROWS[11:20])
    client.post("/learn", json={"id": "x", "y": "no"})
    client.post("/predict", json=without(ROWS[20], "y") | {"id": "z"})
    first.served.snapshot()
    left = state(first.served.session)
    crash(first)
    second = make_service(tmp_path)
    assert second.replayed == 3
    assert state(second.served.session) == left
    make_client(second).post("/learn", json={"id": "z", "y": "no"})
    crash(second)
    third = make_service(tmp_path)
    assert third.replayed == 1
    assert third.served.session.counts.learned == 21
    third.close()


def test_a_checkpoint_that_was_not_finished_is_done_without(tmp_path):
    """The log goes on in a new segment when a checkpoint begins: without it the one before and both segments count."""
    first = make_service(tmp_path)
    client = make_client(first)
    client.post("/learn", json=ROWS[:10])
    number = first.order(first.checkpoint).result(60).number
    client.post("/learn", json=ROWS[10:20])
    crash(first)
    whole = first.versions.path(number).read_bytes()
    first.versions.path(number).write_bytes(whole[:-10])
    second = make_service(tmp_path)
    assert second.replayed == 2
    assert served_state(second) == state(alone(tmp_path / "alone", ROWS[:20]))
    second.close()


def test_rollback_brings_an_earlier_state_back_and_forgets_nothing(tmp_path):
    service = make_service(tmp_path)
    client = make_client(service)
    client.post("/learn", json=ROWS[:10])
    early = client.post("/checkpoint").json()
    then = state(service.served.session)
    client.post("/learn", json=ROWS[10:30])
    now = served_state(service)
    answer = client.post("/rollback", json={"checkpoint": early["number"]}).json()
    assert (answer["rolled_back_to"], answer["rows"]) == (early["number"], 10)
    assert state(service.served.session) == then
    client.post("/learn", json=ROWS[10:30])
    assert served_state(service) == now
    refused = client.post("/rollback", json={"checkpoint": 10_000})
    assert refused.status_code == 404
    assert "there is no checkpoint 10000" in refused.json()["error"]
    assert client.post("/rollback", json={"checkpoint": "1"}).status_code == 422
    forward = next(v for v in client.get("/state").json()["checkpoints"] if v["rows"] == 30)
    client.post("/rollback", json={"checkpoint": early["number"]})
    client.post("/rollback", json={"checkpoint": forward["number"]})
    assert state(service.served.session) == now
    crash(service)
    again = make_service(tmp_path)
    assert served_state(again) == now
    again.close()


def test_the_run_is_one_that_the_other_commands_read(tmp_path):
    """The newest checkpoint is the run's own; if `natkal learn` went on with it, that is said, not guessed."""
    service = make_service(tmp_path)
    make_client(service).post("/learn", json=ROWS[:10])
    service.close()
    from natkal.runs.predict_rows import load

    session = load(tmp_path / "run", None)
    assert session.counts.learned == 10
    session.save()
    with pytest.raises(StreamError, match="natkal learn went on with it after it was served"):
        make_service(tmp_path)


def test_records_end_where_one_is_torn(tmp_path):
    path = tmp_path / "000001.log"
    journal = Journal(path)
    bodies = [os.urandom(size) for size in (0, 1, 100, 50_000)]
    for number, body in enumerate(bodies, 1):
        journal.add(Record(number, 2, body))
        journal.write(sync=number == 4)
    assert [record.body for record in read_records(path, after=0)] == bodies
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, journal.length, 30).tolist():
        path.write_bytes(whole[:place])
        cut = [record.body for record in read_records(path, after=0)]
        assert cut == bodies[: len(cut)]
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        damaged = [record.body for record in read_records(path, after=0)]
        assert damaged == bodies[: len(damaged)]
        assert len(damaged) < len(bodies)
    path.write_bytes(whole)
    with pytest.raises(StreamError, match="the log is damaged"):
        list(read_records(path, after=3))


def test_a_log_that_cannot_be_written_acknowledges_nothing_more(tmp_path):
    service = make_service(tmp_path)
    client = make_client(service)
    client.post("/learn", json=ROWS[:10])
    asked = client.post("/predict", json=without(ROWS[10], "y")).json()
    service.journal.close()
    answer = client.post("/learn", json=ROWS[11])
    assert answer.status_code == 503
    assert "the log cannot be written" in answer.json()["error"]
    assert client.get("/readyz").status_code == 503
    assert client.post("/predict", json=without(ROWS[10], "y")).json() == asked
    with pytest.raises(StreamError, match="the log cannot be written"):
        service.close()
    service._background.shutdown()
    for output in service.served.session.outputs.values():
        output.close()


@pytest.mark.parametrize("place", ["learn", "wait"])
def test_a_group_that_fails_is_forgotten(tmp_path, monkeypatch, place):
    """Before the log or behind it: state, checkpoints and log are as if the request had never come."""
    service = make_service(tmp_path)
    client = make_client(service)
    client.post("/learn", json=ROWS[:10])
    kind = LiveTable if place == "learn" else Pending
    works, left = getattr(kind, place), [1]

    def fails_once(*arguments, **options):
        if left:
            left.pop()
            raise RuntimeError("the device is lost")
        return works(*arguments, **options)

    monkeypatch.setattr(kind, place, fails_once)
    answer = client.post("/learn", json=[ROWS[10] | {"y": "maybe", "colour": "violet"}, *ROWS[11:15]])
    assert answer.status_code == 500
    assert answer.json()["error"] == "learning failed (RuntimeError: the device is lost); nothing of it is kept"
    client.post("/learn", json=ROWS[20:30])
    assert client.post("/checkpoint").status_code == 200
    client.post("/learn", json=ROWS[30:40])
    expected = state(alone(tmp_path / "alone", ROWS[:10] + ROWS[20:40]))
    service.served.snapshot()
    assert state(service.served.session) == expected
    crash(service)
    again = make_service(tmp_path)
    assert again.replayed == 1
    assert state(again.served.session) == expected
    again.close()


def test_what_cannot_be_restored_is_not_saved(tmp_path, monkeypatch):
    service = make_service(tmp_path)
    client = make_client(service)
    client.post("/learn", json=ROWS[:10])
    numbers = service.versions.numbers()

    def fails(*arguments, **options):
        raise RuntimeError("the device is lost")

    with monkeypatch.context() as broken:
        broken.setattr(Pending, "wait", fails)
        assert client.post("/learn", json=ROWS[10]).status_code == 503
    for path in ("/learn", "/checkpoint"):
        answer = client.post(path, json=ROWS[11] if path == "/learn" else None)
        assert answer.status_code == 503
        assert "the state before cannot be restored" in answer.json()["error"]
    assert service.versions.numbers() == numbers
    crash(service)
    again = make_service(tmp_path)
    assert state(again.served.session) == state(alone(tmp_path / "alone", ROWS[:10]))
    again.close()


def test_a_kill_and_a_termination(tmp_path):
    """The real process: SIGKILL after an answer, then SIGTERM, which ends with 0 and a checkpoint."""
    command = [sys.executable, "-m", "natkal", "serve", str(tmp_path / "run"), "--port", "0", "--json"]
    new = ["--target", "y", "--schema", str(first_rows(tmp_path)), "--learner", "single", "--model", "linear"]
    new += ["--past", "1"]
    for options, number, rows in ((new, signal.SIGKILL, ROWS[:20]), ([], signal.SIGTERM, ROWS[20:40])):
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            text += line
        address = json.loads(text)["address"]
        request = urllib.request.Request(address + "/learn", json.dumps(rows).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["learned"] == 20
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 0), errors
    _, arrays = checkpoint.read(tmp_path / "run" / checkpoint.CURRENT)
    expected = state(alone(tmp_path / "alone", ROWS[:40]))
    assert {name: value.tobytes() for name, value in arrays.items()} == {
        name: value for name, value in expected.items() if name != "header"
    }
