"""Numbers for ids, given out from 0 in the order in which ids first appear; many ids at a time, few bytes for each."""

import hashlib
from typing import Any

import numpy as np

FIRST_TABLE = 1 << 10
FULLEST = 0.6
"""The share of the table in use beyond which it doubles."""


def words_of(ids: Any) -> np.ndarray:
    """Ids as (n, 2) unsigned 64-bit words: an integer and 0, or the 128-bit BLAKE2b digest of a text."""
    array = np.asarray(ids)
    if array.ndim != 1:
        raise ValueError(f"ids: must be one for each row, got shape {array.shape}")
    if np.issubdtype(array.dtype, np.integer):
        return np.stack([array.astype(np.int64).view(np.uint64), np.zeros(len(array), np.uint64)], axis=1)
    if array.dtype.kind not in "USOT" or not all(isinstance(one, str | bytes) for one in array.tolist()):
        raise ValueError(f"ids: must be integers or texts, got {array.dtype}")
    texts, back = np.unique(array, return_inverse=True)
    digests = b"".join(
        hashlib.blake2b(one if isinstance(one, bytes) else one.encode(), digest_size=16).digest()
        for one in texts.tolist()
    )
    return np.frombuffer(digests, "<u8").reshape(-1, 2).astype(np.uint64)[back]


def mixed(words: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each id, all bits of which depend on all of the id (the finaliser of splitmix64)."""
    z = words[:, 0] ^ (words[:, 1] * np.uint64(0x9E3779B97F4A7C15))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class KeyIndex:
    """Ids and their numbers. An open-addressing table of numbers; the ids themselves lie in the order of numbers."""

    def __init__(self) -> None:
        self._table = np.full(FIRST_TABLE, -1, np.int32)
        self._words = np.zeros((FIRST_TABLE, 2), np.uint64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def words(self) -> np.ndarray:
        """The ids by number."""
        return self._words[: self._count]

    def find(self, words: np.ndarray) -> np.ndarray:
        """The number of each id, -1 where there is none."""
        found = np.full(len(words), -1, np.int32)
        mask = np.uint64(len(self._table) - 1)
        places = (mixed(words) & mask).astype(np.int64)
        open_ = np.arange(len(words))
        while len(open_):
            numbers = self._table[places[open_]]
            same = (numbers >= 0) & (self._words[numbers] == words[open_]).all(axis=1)
            found[open_[same]] = numbers[same]
            open_ = open_[(numbers >= 0) & ~same]
            places[open_] = (places[open_] + 1) & int(mask)
        return found

    def add(self, words: np.ndarray) -> np.ndarray:
        """The number of each id, a new one for an id not seen before."""
        found = self.find(words)
        missing = np.flatnonzero(found < 0)
        if not len(missing):
            return found
        fresh = words[missing]
        first, back = _distinct(fresh)
        order = np.argsort(first)  # by first appearance
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        numbers = (self._count + rank).astype(np.int32)
        self._append(fresh[first[order]])
        found[missing] = numbers[back]
        return found

    def _append(self, words: np.ndarray) -> None:
        needed = self._count + len(words)
        if needed > len(self._words):
            larger = np.zeros((max(needed, len(self._words) * 3 // 2), 2), np.uint64)
            larger[: self._count] = self._words[: self._count]
            self._words = larger
        self._words[self._count : needed] = words
        first, self._count = self._count, needed
        size = len(self._table)
        while needed > FULLEST * size:
            size *= 2
        if size > len(self._table):
            self._table = np.full(size, -1, np.int32)
            first = 0
        for start in range(first, needed, 1 << 20):
            self._enter(np.arange(start, min(start + (1 << 20), needed), dtype=np.int32))

    def _enter(self, numbers: np.ndarray) -> None:
        """Every number takes the first free place from its hash on; of those that want the same place, one gets it."""
        mask = len(self._table) - 1
        places = (mixed(self._words[numbers]) & np.uint64(mask)).astype(np.int64)
        while len(numbers):
            free = self._table[places] < 0
            self._table[places[free]] = numbers[free]
            placed = self._table[places] == numbers
            numbers, places = numbers[~placed], (places[~placed] + 1) & mask


def _distinct(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each different id is first, and which of these each id is; by one word where that tells all of them."""
    one = words[:, 0] if not words[:, 1].any() else mixed(words)
    _, first, back = np.unique(one, return_index=True, return_inverse=True)
    if not (words[first[back]] == words).all():
        _, first, back = np.unique(words, axis=0, return_index=True, return_inverse=True)
    return first, back.ravel()
