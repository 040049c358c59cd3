"""Reading ahead: the same blocks in the same order, failures where they belong; and what commands keep."""

import itertools

import jax
import numpy as np
import pytest

from natkal.errors import StreamError
from natkal.reading import read_ahead as ahead
from natkal.reading.read_ahead import Ahead
from natkal.runs import runtime
from natkal.tables.schema.rows import Position, Rows


def block(number: int) -> Rows:
    return Rows("f", {"x": np.full(100, float(number))}, np.arange(100), [], 0, Position(0, number, number))


def test_blocks_come_in_order_and_a_failure_in_its_place(monkeypatch):
    monkeypatch.setattr(ahead, "ROOM", 3 * 800)  # three blocks
    given = itertools.count()

    def read() -> Rows:
        number = next(given)
        if number == 20:
            raise StreamError("torn")
        return block(number)

    reader = Ahead(read)
    for number in range(20):
        rows = reader.next()
        assert rows is not None
        assert rows.position.line == number
    for _ in range(2):
        with pytest.raises(StreamError, match="torn"):
            reader.next()
    reader.close()


def test_it_reads_no_further_than_there_is_room(monkeypatch):
    monkeypatch.setattr(ahead, "ROOM", 3 * 800)
    read: list[int] = []

    def one() -> Rows:
        read.append(1)
        return block(0)

    reader = Ahead(one)
    reader.next()
    reader.close()
    assert len(read) <= 5


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NATKAL_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(runtime, "_linked", lambda folder: pytest.fail("there is no folder"))
    enabled = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", True)
    try:
        runtime.keep_programs()
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_enable_compilation_cache", enabled)


def test_a_process_sees_what_others_compiled_and_clears_up_after_the_dead(tmp_path):
    (tmp_path / "program").write_bytes(b"1")
    dead = tmp_path / "process-999999999"
    dead.mkdir()
    own = runtime._linked(tmp_path)
    assert (own / "program").read_bytes() == b"1"
    assert not dead.exists()
    (own / "new").write_bytes(b"2")
    runtime._hand_over(own)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["new", "program"]
