"""A learner for each id, most of them on disk: the same to the last bit as with all of them in memory."""

import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.keyed.key_index import KeyIndex, words_of
from natkal.keyed.keyed_fleet import KeyedFleet, shard_of
from natkal.storage.file import StorageError

SIZE, IDS = 3, 128


@pytest.fixture(scope="module")
def learner() -> nk.Learner:
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(SIZE), nk.families.Gaussian(1.0))
    return nk.online(model, prior_cov=1.0, rates=nk.fading(0.01))


def blocks(count: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows of 64 ids, and then 16 more rows of three of them, in any order."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        some = rng.permutation(IDS)[:64]
        ids = rng.permutation(np.concatenate([some, rng.choice(some[:3], 16)]))
        made.append((ids, rng.normal(size=(80, SIZE)), rng.normal(size=80)))
    return made


def states(fleet: KeyedFleet) -> dict[int, list[np.ndarray]]:
    """The state of each id, in the form that the fleet keeps it."""
    found = {}
    for first in range(0, len(fleet), 16):
        numbers = np.arange(first, min(first + 16, len(fleet)))
        slots = fleet._bring(numbers)
        records = fleet._records(slots)
        found |= {int(fleet.index.words[number, 0]): [record] for number, record in zip(numbers, records, strict=True)}
    return found


def same(one: dict, other: dict) -> None:
    assert one.keys() == other.keys()
    for key, leaves in one.items():
        for left, right in zip(leaves, other[key], strict=True):
            np.testing.assert_array_equal(left, right)


def test_ids_on_disk_learn_the_same_bits_and_a_save_is_all_of_it(
    tmp_path: Path, learner: nk.Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("natkal.keyed.segments.SEGMENT_BYTES", 10_000)  # many segments
    data = blocks(6)
    large = KeyedFleet(learner, tmp_path / "large", hot=128)
    small = KeyedFleet(learner, tmp_path / "small", hot=32)
    for number, block in enumerate(data):
        np.testing.assert_array_equal(small.learn(*block), large.learn(*block))
        if number == 3:
            small.save()
            shutil.copytree(tmp_path / "small", tmp_path / "again")
            again = KeyedFleet(learner, tmp_path / "again", hot=32)
            again.load()
            assert (len(again), again.blocks) == (len(small), 4)
    wanted = states(large)
    same(states(small), wanted)
    for block in data[4:]:  # the rows since the save, replayed
        again.learn(*block)
    same(states(again), wanted)
    again.save()
    parts = [KeyedFleet(learner, tmp_path / f"part-{shard}", hot=32) for shard in range(2)]
    for shard, part in enumerate(parts):
        part.adopt(tmp_path / "again", shard, 2)
    assert set(states(parts[0])) & set(states(parts[1])) == set()
    same(states(parts[0]) | states(parts[1]), wanted)
    told, alone = small.predict([1, 2, 10**9], data[0][1][:3]), large.predict([1, 2, 10**9], data[0][1][:3])
    np.testing.assert_array_equal(told.mean, alone.mean)
    np.testing.assert_array_equal(told.mean[2], np.zeros(1))
    files = list((tmp_path / "again").glob("segment-*"))
    damaged = files[0].read_bytes()
    files[0].write_bytes(damaged[:-1] + bytes([damaged[-1] ^ 1]))
    with pytest.raises(StorageError, match="SHA-256"):
        KeyedFleet(learner, tmp_path / "again", hot=32).load()


def test_an_index_numbers_ids_like_a_dictionary() -> None:
    rng = np.random.default_rng(0)
    index, numbers = KeyIndex(), {}
    for _ in range(20):
        ids = rng.integers(-(10**6), 10**6, 3000)
        wanted = [numbers.setdefault(int(one), len(numbers)) for one in ids]
        np.testing.assert_array_equal(index.add(words_of(ids)), wanted)
    np.testing.assert_array_equal(index.find(words_of(np.array([10**7]))), [-1])
    texts = KeyIndex()
    np.testing.assert_array_equal(texts.add(words_of(["ann", "bob", "ann", "zoë"])), [0, 1, 0, 2])
    shares = np.bincount(shard_of(index.words, 4), minlength=4) / len(index)
    assert np.abs(shares - 0.25).max() < 0.02
    with pytest.raises(ValueError, match="integers or texts"):
        words_of([1.5])
