"""Topics of Kafka, on the mock broker of librdkafka: what is learned, what is kept, what is written."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import numpy as np
import pytest

from natkal.errors import StreamError
from natkal.reading.kafka import client, merge
from natkal.reading.open_source import open_source
from natkal.runs import checkpoint
from natkal.runs.partitions import PartitionRun
from natkal.runs.session import Session
from tests.app import support
from tests.app.mock_kafka import MockKafka, json_lines
from tests.app.support import learned, same_arrays, settings, table

ROWS = json_lines("abcy", table(600))
TOPICS = {
    **{"rows": 1, "dirty": 1, "spread": 3, "shared": 4, "deleted": 1, "avro": 1, "killed": 1, "plain": 1, "said": 1},
    **{"out": 2, "once": 2, "dead": 1, "asked": 1, "labels": 2, "later": 1, "sooner": 1, "default": 1},
}


@pytest.fixture(scope="module")
def broker():
    cluster = MockKafka(TOPICS)
    yield cluster
    cluster.close()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Many small blocks, as a large topic would have."""
    monkeypatch.setattr(merge, "BLOCK_MESSAGES", 64)


def learn(folder: Path, url: str, *, stop=None, **changes) -> Session:
    """A topic up to its end, or to where `stop` says so."""
    chosen = settings(**changes)
    folder.mkdir(exist_ok=True)
    rows = open_source([url], chosen, folder, until_end=True)
    session, first = Session.begin(folder, chosen, rows)
    session.run(rows, first, stop=lambda: stop is not None and stop(session))
    return session


def resume(folder: Path) -> Session:
    session, _ = Session.resume(folder)
    try:
        rows = open_source(session.files, session.settings, folder, until_end=True, offsets=session.offsets)
        session.run(rows, [])
    finally:
        session.close_outputs()
    return session


def from_file(folder: Path, lines: list[str], **changes) -> Session:
    path = folder.with_suffix(".jsonl")
    path.write_text("\n".join(lines) + "\n")
    return support.learn(folder, path, **changes)


def test_a_topic_is_learned_as_a_file_with_its_values(broker, tmp_path):
    """Bit for bit; rejects go to the dead letters as they came, predictions to a topic under the key of their row."""
    dirty = [*ROWS[:100], "{broken", '{"a": "wrong", "b": 1, "c": 1, "y": 1}', "", *ROWS[100:]]
    broker.send("dirty", dirty)
    file = from_file(tmp_path / "file", dirty, classes=("0", "1"), predictions=str(tmp_path / "p.jsonl"))
    places = {"predictions": broker.url("out"), "rejects": broker.url("dead")}
    session = learn(tmp_path / "topic", broker.url("dirty"), classes=("0", "1"), **places)
    assert same_arrays(learned(tmp_path / "file"), learned(tmp_path / "topic"))
    assert session.counts == file.counts
    assert (session.counts.read, session.counts.learned, session.counts.rejected) == (603, 600, 2)
    assert session.offsets == {"dirty[0]": 603}
    dead = broker.read("dead", 1)
    assert [message.value().decode() for message in dead] == dirty[100:102]
    assert [dict(message.headers())["natkal"] for message in dead] == [b"dirty[0]:100", b"dirty[0]:101"]
    assert all(dict(message.headers())["natkal.reason"] for message in dead)
    told = sorted(broker.read("out", 2), key=lambda message: json.loads(message.value())["offset"])
    assert [message.key() for message in told[:3]] == [b"k0", b"k1", b"k2"]
    expected = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    for message, line in zip(told, expected, strict=True):
        value = json.loads(message.value())
        assert value.pop("offset") == line.pop("line") - 1
        assert value.pop("partition") == 0
        assert value == line


def test_resuming_goes_by_the_checkpoint_and_not_by_the_group(broker, tmp_path):
    broker.send("rows", ROWS)
    cut = learn(tmp_path / "cut", broker.url("rows"), stop=lambda session: session.counts.read >= 200)
    assert 200 <= cut.counts.read < 600
    consumer = broker.make_consumer("cut")
    time.sleep(0.2)
    consumer.commit(offsets=[confluent_kafka.TopicPartition("rows", 0, 590)], asynchronous=False)
    assert consumer.committed([confluent_kafka.TopicPartition("rows", 0)])[0].offset == 590
    consumer.close()
    assert resume(tmp_path / "cut").counts.learned == 600
    learn(tmp_path / "whole", broker.url("rows"))
    assert same_arrays(support.arrays(tmp_path / "cut"), support.arrays(tmp_path / "whole"))


def test_partitions_are_merged_in_one_order_wherever_a_run_is_cut(broker, tmp_path):
    broker.send("spread", ROWS, lambda row: (row // 5) % 3)
    learn(tmp_path / "whole", broker.url("spread"))
    for rows in (100, 400):
        learn(tmp_path / str(rows), broker.url("spread"), stop=lambda session, rows=rows: session.counts.read >= rows)
        assert resume(tmp_path / str(rows)).counts.learned == 600
        assert same_arrays(learned(tmp_path / "whole"), learned(tmp_path / str(rows)))


def test_transactions_show_each_prediction_once(broker, tmp_path, monkeypatch):
    """The process dies between the transaction and the checkpoint, where at least once would write rows again."""
    broker.send("plain", ROWS[:400])

    def fail(*_):
        raise StreamError("killed")

    def stop(session: Session) -> bool:
        if session.counts.read >= 200:
            monkeypatch.setattr(checkpoint, "write", fail)
        return session.counts.read >= 200

    with pytest.raises(StreamError, match="killed"):
        learn(tmp_path / "run", broker.url("plain"), stop=stop, predictions=broker.url("once"), transactions=True)
    monkeypatch.undo()
    assert len(broker.read("once", 2)) >= 200
    assert Session.resume(tmp_path / "run")[0].counts.read == 0
    assert resume(tmp_path / "run").counts.learned == 400
    told = [dict(message.headers())["natkal"] for message in broker.read("once", 2)]
    assert sorted(told) == sorted(f"plain[0]:{row}".encode() for row in range(400))


def test_a_partition_is_handed_over_to_a_member_that_joins(broker, tmp_path):
    """Two members of a group, partitions revoked half-way: states as from each partition's file."""
    for partition in range(4):
        from_file(tmp_path / f"file-{partition}", ROWS[partition::4], sample=20)
    (tmp_path / "quick").write_text("session.timeout.ms=3000\nheartbeat.interval.ms=100\n")
    common = settings(sample=20, kafka_config=str(tmp_path / "quick"))
    seen: list[str] = []
    members = [PartitionRun(tmp_path / "run", common, broker.url("shared"), tell=seen.append)]
    broker.send("shared", ROWS[:300], lambda row: row % 4)
    step_until(members, lambda: members[0].counts.read == 300)
    members.append(PartitionRun(tmp_path / "run", common, broker.url("shared"), tell=seen.append))
    step_until(members, lambda: len(members[1].sessions) == 2)
    assert [words for words in seen if "handed over" in words]
    assert [words for words in seen if "goes on at message 75" in words]
    broker.send("shared", ROWS[300:], lambda row: row % 4)
    step_until(members, lambda: sum(member.counts.read for member in members) == 600)
    assert [len(member.sessions) for member in members] == [2, 2]
    for member in members:
        member.step(checkpoint_seconds=0)
        member.close()
    for partition in range(4):
        folder = tmp_path / "run" / f"partition-{partition}"
        assert same_arrays(learned(folder), learned(tmp_path / f"file-{partition}"))


def step_until(members: list[PartitionRun], reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        for member in members:
            member.step(checkpoint_seconds=None)


def test_labels_of_another_topic_find_their_rows(broker, tmp_path):
    """Labels behind their rows: as rows and labels in one file. Labels before them: as labelled rows.

    The latter but for three inputs: labels have no features, so each feature has a flag that says it is missing.
    """
    records = [json.loads(row) for row in ROWS[:200]]
    asked = [json.dumps({"id": f"r{n}", **{key: row[key] for key in "abc"}}) for n, row in enumerate(records)]
    labels = [json.dumps({"id": f"r{n}", "y": row["y"], "note": "not a feature"}) for n, row in enumerate(records)]
    plain = [json.dumps({"id": f"r{n}", "y": row["y"]}) for n, row in enumerate(records)]
    broker.send("sooner", labels)
    time.sleep(0.05)
    broker.send("asked", asked)
    time.sleep(0.05)
    broker.send("later", labels)
    late = learn(tmp_path / "late", broker.url("asked"), id="id", label_topic="later", sample=200)
    from_file(tmp_path / "file", [*asked, *plain], id="id", sample=400)
    assert same_arrays(learned(tmp_path / "late"), learned(tmp_path / "file"))
    assert (late.counts.read, late.counts.learned, late.counts.skipped) == (400, 200, 200)
    early = learn(tmp_path / "early", broker.url("asked"), id="id", label_topic="sooner", sample=200)
    whole = [json.dumps({**json.loads(row), "y": one["y"]}) for row, one in zip(asked, records, strict=True)]
    labelled = from_file(tmp_path / "labelled", whole, id="id", sample=200)
    assert (early.counts.read, early.counts.learned) == (400, labelled.counts.learned)
    losses = [one.metrics.parts[0].summary()["log_loss"] for one in (early, labelled)]
    assert (early.encoder.width, labelled.encoder.width) == (6, 3)
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert not early.early
    assert not early.held


def test_what_cannot_be_read_is_said(broker, tmp_path, monkeypatch):
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.5)
    for url, words in {
        broker.url("row"): "there is no such topic; .* did you mean 'rows'",
        "kafka://127.0.0.1:1/rows": "no broker answers",
        "kafka://127.0.0.1:1": "write kafka://BROKER:PORT/TOPIC",
        "kafka://127.0.0.1:1/a b": "letters, digits",
    }.items():
        with pytest.raises(StreamError, match=words):
            learn(tmp_path / "run", url)
    broker.send("avro", [b"\0\0\0\0\1\2abc"])
    with pytest.raises(StreamError, match=r"avro\[0\], message 0: begins with .*Avro.*natkal reads JSON"):
        learn(tmp_path / "run", broker.url("avro"))
    broker.send("said", ROWS[:100])
    for changes, words in {
        ("label_topic", "labels"): "give --id",
        ("transactions", True): "nothing is written to a topic",
        ("predictions", broker.url("said")): "is the data itself",
    }.items():
        with pytest.raises(StreamError, match=words):
            learn(tmp_path / "run", broker.url("said"), **dict([changes]))
    broker.send("deleted", ROWS[:300])
    learn(tmp_path / "deleted", broker.url("deleted"), stop=lambda session: session.counts.read >= 100)
    broker.delete_before("deleted", 0, 290)
    with pytest.raises(StreamError, match=r"the run stands in the topic of deleted\[0\]"):
        open_source([broker.url("said")], settings(), tmp_path, offsets={"deleted[0]": 100})
    with pytest.raises(StreamError, match=r"the broker has deleted those before 290: .* messages are missing"):
        resume(tmp_path / "deleted")
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(StreamError, match=r"pip install 'natkal\[kafka\]'"):
        learn(tmp_path / "run", broker.url("rows"))


def test_a_killed_process_learns_every_message_once(broker, tmp_path):
    """SIGKILL in the middle of a topic, then the same command with --resume, against the run that was never killed."""
    lines = ROWS * 20
    broker.send("killed", lines)
    command = [sys.executable, "-m", "natkal", "learn", broker.url("killed"), "--target", "y", "--model", "linear"]
    command += ["--learner", "single", "--run", str(tmp_path / "run"), "--no-report", "--json", "--until-end"]
    command += ["--checkpoint-every", "1000", "--resume"]
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "0"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        while not (tmp_path / "run" / checkpoint.PREVIOUS).exists():
            time.sleep(0.002)
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    kept = Session.resume(tmp_path / "run")[0]
    assert kept.offsets["killed[0]"] == kept.counts.read < len(lines)
    assert resume(tmp_path / "run").counts.learned == len(lines)
    from_file(tmp_path / "file", lines, sample=1000)
    assert same_arrays(learned(tmp_path / "run"), learned(tmp_path / "file"))


@pytest.mark.slow
def test_the_default_model_on_a_topic_is_the_one_on_a_file(broker, tmp_path):
    broker.send("default", ROWS)
    learn(tmp_path / "topic", broker.url("default"), learner="auto", model="auto")
    from_file(tmp_path / "file", ROWS, learner="auto", model="auto")
    assert same_arrays(learned(tmp_path / "topic"), learned(tmp_path / "file"))
    assert np.isfinite(Session.resume(tmp_path / "topic")[0].metrics.parts[0].summary()["log_loss"])
