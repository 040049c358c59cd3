"""Checkpoints: whole or refused. 5,000 damaged ones are part of `make soak`; some hundreds run here."""

import errno
import json
import os
import struct

import numpy as np
import pytest

from natkal.errors import CheckpointError, StreamError
from natkal.runs import checkpoint
from natkal.runs.session import Session
from natkal.storage import file as storage
from tests.app.garbage import damaged
from tests.app.support import csv_text, learn, table

HEADER = {"format": 2, "note": "ü", "numbers": [1, 2.5, 1e-300]}
ARRAYS = {
    "cov": np.arange(12.0).reshape(3, 4),
    "scalar": np.array(7, np.uint32),
    "none": np.zeros((0, 5)),
    "count": np.array([1, 2], np.int64),
}


def forged(path, header: dict, arrays: dict) -> None:
    """A file whose digest is right and whose contents are not."""
    checkpoint.write(path.parent, header, arrays)


def refused(run) -> bool:
    try:
        Session.resume(run)
    except CheckpointError:
        return True
    return False


@pytest.fixture
def run(tmp_path):
    (tmp_path / "d.csv").write_text(csv_text(table(120)))
    learn(tmp_path / "run", tmp_path / "d.csv")
    return tmp_path / "run"


def test_what_is_written_is_read(tmp_path):
    path = checkpoint.write(tmp_path, HEADER, ARRAYS)
    header, arrays = checkpoint.read(path)
    assert header == HEADER
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)
    assert not list(tmp_path.glob("*.tmp"))


def test_damaged_checkpoints_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    data = checkpoint.write(tmp_path, HEADER, ARRAYS).read_bytes()
    path = tmp_path / "damaged.nk"
    for _ in range(500):
        path.write_bytes(damaged(data, rng))
        with pytest.raises(CheckpointError, match=r"damaged\.nk"):
            checkpoint.read(path)


def test_forged_contents_are_refused(run):
    header, arrays = checkpoint.read(run / checkpoint.CURRENT)
    cov = next(name for name in arrays if "cov" in name)
    forgeries = [
        (header, {**arrays, cov: np.zeros((5, 5))}),
        (header, {**arrays, cov: arrays[cov].astype(np.float32)}),
        (header, {name: value for name, value in arrays.items() if name != cov}),
        (header, {**arrays, "extra": np.zeros(3)}),
        ({**header, "format": 1}, arrays),
        ({**header, "held": ["a"] * 10}, arrays),
        ({**header, "queue": 10**12}, arrays),
        ({**header, "queue": [0] * 7}, arrays),
        ({**header, "learner": {**header["learner"], "keys": [str(i) for i in range(100)]}}, arrays),
        ({**header, "learner": {**header["learner"], "room": 10**9}}, arrays),
        ({**header, "counts": {**header["counts"], "read": "many"}}, arrays),
        ({**header, "settings": {}}, arrays),
        ({**header, "settings": {**header["settings"], "model": "os:kill"}}, arrays),
        ({**header, "settings": {**header["settings"], "model": "mlp:1000000,1000000"}}, arrays),
        *((_with_architecture(header, name), arrays) for name in ("os:kill", "mlp:1000000,1000000", "gru:1000000000")),
        ({**header, "position": [1]}, arrays),
        ({name: value for name, value in header.items() if name != "counts"}, arrays),
        ({**header, "schema": {**header["schema"], "features": header["schema"]["features"][:1]}}, arrays),
    ]
    for number, (bad_header, bad_arrays) in enumerate(forgeries):
        checkpoint.remove(run)
        forged(run / checkpoint.CURRENT, bad_header, bad_arrays)
        assert refused(run), f"forgery {number} was loaded"


def _with_architecture(header, name):
    """The header with another architecture in the place of each of the run's own."""
    forged = json.loads(json.dumps(header))
    for group in forged["learner"]["specs"][0]["groups"]:
        group["architecture"] = name
    return forged


def test_a_payload_that_lies_about_its_size_is_refused(tmp_path):
    lie = json.dumps({"x": {"dtype": "F64", "shape": [1 << 40], "data_offsets": [0, 8 << 40]}}).encode()
    payload = struct.pack("<Q", len(lie)) + lie
    text = b"{}"
    fixed = storage.FIXED.pack(storage.MAGIC, len(text), len(payload), storage._digest(text, payload))
    path = tmp_path / "lie.nk"
    path.write_bytes(fixed + text + payload)
    with pytest.raises(CheckpointError, match="payload"):
        checkpoint.read(path)


def test_the_previous_generation_takes_over(run):
    current = run / checkpoint.CURRENT
    current.write_bytes(current.read_bytes()[:-1])
    session, warning = Session.resume(run)
    assert warning is not None
    assert "damaged" in warning
    assert session.counts.read <= 120
    (run / checkpoint.PREVIOUS).unlink()
    with pytest.raises(CheckpointError):
        Session.resume(run)


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    checkpoint.write(tmp_path, HEADER, ARRAYS)
    before = (tmp_path / checkpoint.CURRENT).read_bytes()

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(StreamError, match=r"No space left on device.*the last checkpoint is kept"):
        checkpoint.write(tmp_path, {"format": 1}, ARRAYS)
    assert (tmp_path / checkpoint.CURRENT).read_bytes() == before
    assert not list(tmp_path.glob("*.tmp"))
