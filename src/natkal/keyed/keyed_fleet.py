"""A learner for each id, as many as there are: hot ones in memory as one fleet, cold ones on disk, by recency."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.engine.protocol import Learner, Prediction
from natkal.keyed.fleet import fleet, power_of_two, rounds
from natkal.keyed.key_index import KeyIndex, mixed, words_of
from natkal.keyed.segments import Segments
from natkal.storage.file import StorageError, read_file, write_file
from natkal.storage.states import array_template, restored, state_arrays
from natkal.stream.checks import check_rows, check_stream

MANIFEST = "fleet.natkal"
LARGEST_ROUND = 1 << 15
"""Rows that are learned together at most."""
LEAST_TOGETHER, LEAST_IN_TURN = 1 << 10, 64
"""Rows that a call is padded to at least."""


class KeyedFleet:
    """Learners by id, of which `hot` are in memory; `folder` has the others. See this folder's README.

    >>> import tempfile
    >>> import jax.numpy as jnp
    >>> import natkal as nk
    >>> model = nk.static_model(lambda w, u: w * u, jnp.zeros(()), nk.families.Gaussian(1.0))
    >>> fleet = KeyedFleet(nk.online(model, prior_cov=1.0), tempfile.mkdtemp(), hot=32)
    >>> log_probs = fleet.learn(["ann", "bob", "ann", "ann"], jnp.ones(4), jnp.ones(4))
    >>> [round(float(x), 6) for x in fleet.predict(["ann", "bob", "eve"], jnp.ones(3)).mean[:, 0]]
    [0.75, 0.5, 0.0]
    """

    def __init__(self, learner: Learner, folder: str | Path, *, hot: int = 1 << 17):
        if hot < 32:
            raise ValueError(f"hot: must be at least 32, got {hot}")
        self.fleet = fleet(learner, power_of_two(hot))
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.index = KeyIndex()
        self.blocks = 0
        """How many blocks of rows were learned; saved with the states."""
        self._state = self.fleet.init()
        self._one = jax.eval_shape(lambda: self._state.start)
        self._template = array_template(self._one)
        width = sum(_bytes(shape, dtype) for shape, dtype in self._template.values())
        self._segments = Segments(self.folder, width)
        self._segment, self._row, self._slot = (np.full(0, -1, np.int32) for _ in range(3))
        size = self.fleet.size
        self._owner = np.full(size, -1, np.int32)
        self._used = np.zeros(size, np.int64)
        self._dirty = np.zeros(size, bool)
        self._clock = 0

    def __len__(self) -> int:
        """How many ids have learned."""
        return len(self.index)

    def learn(self, ids: Any, inputs: Any, targets: Any) -> np.ndarray:
        """Row i is learned by the learner of `ids[i]`, the rows of one id in their order.

        Returns the log probability of each row before it was learned.
        """
        return self.learn_unchecked(*checked_rows(self.fleet.learner, ids, inputs, targets))

    def learn_unchecked(self, words: np.ndarray, inputs: Any, targets: np.ndarray) -> np.ndarray:
        """`learn` on values already checked, the ids as `words_of` gives them."""
        numbers = self.index.add(words)
        self._make_places()
        log_probs = np.zeros(len(numbers), self._dtype)
        for rows, together in rounds(numbers):
            for part in np.split(rows, np.arange(self._together, len(rows), self._together)) if together else [rows]:
                slots = self._bring(numbers[part])
                picked = jax.tree.map(lambda leaf, part=part: leaf[part], (inputs, targets))
                least = self._width(1) if together else LEAST_IN_TURN
                members, told = self.fleet.advance(
                    self._state.members, slots, *picked, together=together, quiet=True, least=least
                )
                self._state = self._state._replace(members=members)
                self._dirty[slots] = True
                log_probs[part] = np.asarray(told)[: len(part)]
        self.blocks += 1
        return log_probs

    def predict(self, ids: Any, inputs: Any) -> Prediction:
        """What the learner of `ids[i]` expects for row i; of an id never seen, what every learner starts with."""
        check_rows(inputs)
        return self.predict_unchecked(words_of(ids), jax.tree.map(np.asarray, inputs))

    def predict_unchecked(self, words: np.ndarray, inputs: Any) -> Prediction:
        """`predict` on values already checked, the ids as `words_of` gives them."""
        numbers = self.index.find(words)
        pieces = []
        for first in range(0, len(numbers), self._together):
            part = slice(first, first + self._together)
            own = numbers[part]
            slots = np.full(len(own), self.fleet.size)
            known = np.flatnonzero(own >= 0)
            slots[known] = self._bring(own[known])
            wide = self._width(len(own))
            padded = jax.tree.map(lambda leaf, part=part, wide=wide: _wide(leaf[part], wide), inputs)
            told = self.fleet.predict(self._state, _wide(slots, wide), padded)
            pieces.append(jax.tree.map(lambda leaf, own=own: leaf[: len(own)], told))
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *pieces)

    def member(self, id: Any) -> Any:
        """The state of one id, as the learner alone keeps it."""
        number = self.index.find(words_of([id]))
        if number[0] < 0:
            raise ValueError(f"id: {id!r} was never seen")
        slot = int(self._bring(number)[0])
        return self.fleet.member(self._state, slot)

    # -- hot and cold --------------------------------------------------------------------------------------------------

    @property
    def _together(self) -> int:
        """How many ids are in memory at once for one call, at most."""
        return min(LARGEST_ROUND, self.fleet.size)

    def _width(self, count: int) -> int:
        """Rows of a call, with padding: one of few powers of two, so that few programs are compiled."""
        return power_of_two(max(count, min(LEAST_TOGETHER, self.fleet.size)))

    @property
    def _dtype(self) -> Any:
        leaves = jax.tree.leaves(self._one)
        return next(leaf.dtype for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating))

    def _bring(self, numbers: np.ndarray) -> np.ndarray:
        """The slot of each of these ids, in memory from now on; no more of them than there are slots."""
        self._clock += 1
        slots = self._slot[numbers]
        self._used[slots[slots >= 0]] = self._clock
        missing = np.unique(numbers[slots < 0])
        if len(missing):
            self._place(missing)
            slots = self._slot[numbers]
        return slots.astype(np.int64)

    def _place(self, missing: np.ndarray) -> None:
        """Lend slots to these ids: free ones, then those used least recently."""
        order = np.argpartition(np.where(self._owner < 0, -1, self._used), len(missing) - 1)[: len(missing)]
        slots = np.sort(order)
        self._evict(slots[self._owner[slots] >= 0])
        self._owner[slots], self._used[slots], self._dirty[slots] = missing, self._clock, False
        self._slot[missing] = slots
        stored = self._segment[missing] >= 0
        if stored.any():
            cold = missing[stored]
            self._put(slots[stored], self._segments.read(self._segment[cold], self._row[cold]))
        if not stored.all():
            fresh = _wide(slots[~stored], self._width(int((~stored).sum())), beyond=self.fleet.size)
            states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(fresh), *leaf.shape)), self._state.start)
            self._state = self._state._replace(members=self.fleet.place(self._state.members, fresh, states))

    def _evict(self, slots: np.ndarray) -> None:
        """Write what these slots know and free them."""
        self._write(slots[self._dirty[slots]])
        self._slot[self._owner[slots]] = -1
        self._owner[slots] = -1

    def _write(self, slots: np.ndarray) -> None:
        """The states of these slots as records; the ids' older records are dead."""
        for first in range(0, len(slots), LARGEST_ROUND):
            part = slots[first : first + LARGEST_ROUND]
            numbers = self._owner[part]
            before = self._segment[numbers]
            self._segments.drop(before[before >= 0])
            self._segment[numbers], self._row[numbers] = self._segments.append(self._records(part))
        self._dirty[slots] = False

    def _records(self, slots: np.ndarray) -> np.ndarray:
        taken = self.fleet.taken(self._state.members, _wide(slots, self._width(len(slots))).astype(np.int32))
        count = len(slots)
        columns = [
            np.ascontiguousarray(array[:count]).reshape(count, -1).view(np.uint8)
            for array in state_arrays(taken).values()
        ]
        return np.concatenate(columns, axis=1)

    def _put(self, slots: np.ndarray, records: np.ndarray) -> None:
        """States from their records into these slots."""
        wide = self._width(len(slots))
        records = _wide(records, wide)
        arrays, first = {}, 0
        for name, (shape, dtype) in self._template.items():
            last = first + _bytes(shape, dtype)
            arrays[name] = np.ascontiguousarray(records[:, first:last]).view(dtype).reshape(wide, *shape)
            first = last
        states = restored(self._one, arrays)
        places = _wide(slots, wide, beyond=self.fleet.size)
        self._state = self._state._replace(members=self.fleet.place(self._state.members, places, states))

    def _make_places(self) -> None:
        needed = len(self.index)
        if needed > len(self._slot):
            size = max(needed, len(self._slot) * 3 // 2)
            grown = []
            for old in (self._segment, self._row, self._slot):
                new = np.full(size, -1, np.int32)
                new[: len(old)] = old
                grown.append(new)
            self._segment, self._row, self._slot = grown

    # -- on disk -------------------------------------------------------------------------------------------------------

    def save(self) -> Path:
        """Write all that is known into the folder, atomically; what was saved before stays until then."""
        self._write(np.flatnonzero((self._owner >= 0) & self._dirty))
        for segment in self._segments.mostly_dead():
            numbers = np.flatnonzero(self._segment[: len(self)] == segment)
            for part in np.split(numbers, np.arange(LARGEST_ROUND, len(numbers), LARGEST_ROUND)):
                records = self._segments.read(self._segment[part], self._row[part])
                self._segments.drop(self._segment[part])
                self._segment[part], self._row[part] = self._segments.append(records)
        self._segments.close()
        path = self.folder / MANIFEST
        header = {"learner": repr(self.fleet.learner), "blocks": self.blocks, **self._segments.header()}
        arrays = {
            "ids": self.index.words.view(np.int64),
            "segment": self._segment[: len(self)],
            "row": self._row[: len(self)],
        }
        start = {f"start{name}": leaf for name, leaf in state_arrays(self._state.start).items()}
        write_file(path, header, arrays | start)
        self._segments.clean()
        return path

    def load(self) -> None:
        """What was last saved in the folder; a fleet that has learned nothing takes it over."""
        header, arrays = self._manifest(self.folder)
        self._segments = Segments.restored(self.folder, header)
        self._segments.clean()
        self.blocks = int(header["blocks"])
        self.index.add(_words(arrays))
        self._make_places()
        self._segment[: len(self)], self._row[: len(self)] = arrays["segment"], arrays["row"]

    def adopt(self, folder: Path, shard: int, shards: int) -> None:
        """Take over those ids of another saved fleet that belong to this shard of so many."""
        header, arrays = self._manifest(folder)
        other = Segments.restored(folder, header)
        words = _words(arrays)
        own = np.flatnonzero(shard_of(words, shards) == shard)
        for part in np.split(own, np.arange(LARGEST_ROUND, len(own), LARGEST_ROUND)):
            numbers = self.index.add(words[part])
            self._make_places()
            records = other.read(arrays["segment"][part], arrays["row"][part])
            self._segment[numbers], self._row[numbers] = self._segments.append(records)

    def _manifest(self, folder: Path) -> tuple[Mapping[str, Any], Mapping[str, np.ndarray]]:
        path = folder / MANIFEST
        header, arrays = read_file(path)
        start = {name.removeprefix("start"): array for name, array in arrays.items() if name.startswith("start")}
        found = {name: (array.shape, array.dtype) for name, array in start.items()}
        if found != dict(self._template) or header.get("width") != self._segments.width:
            raise StorageError(f"{path}: is of another learner: it was saved from {header.get('learner')}")
        count = len(arrays["ids"])
        places = arrays["segment"], arrays["row"]
        sizes = {int(number): entry[0] for number, entry in header["segments"].items()}
        if arrays["ids"].shape != (count, 2) or any(place.shape != (count,) for place in places):
            raise StorageError(f"{path}: its arrays do not fit each other")
        for segment in np.unique(places[0]):
            rows = places[1][places[0] == segment]
            if int(segment) not in sizes or rows.min() < 0 or rows.max() >= sizes[int(segment)]:
                raise StorageError(f"{path}: names a record that no segment holds")
        return header, arrays


def checked_rows(learner: Learner, ids: Any, inputs: Any, targets: Any) -> tuple[np.ndarray, Any, np.ndarray]:
    """Ids as words, inputs and targets as arrays on the host; refused where they cannot be learned."""
    check_stream(learner, inputs, targets)
    words = words_of(ids)
    if len(words) != len(targets):
        raise ValueError(f"ids: {len(words)} of them for {len(targets)} targets")
    return words, jax.tree.map(np.asarray, inputs), np.asarray(targets)


def shard_of(words: np.ndarray, shards: int) -> np.ndarray:
    """The shard that each id belongs to."""
    return ((mixed(words) >> np.uint64(40)) % np.uint64(shards)).astype(np.int64)


def _words(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.ascontiguousarray(arrays["ids"]).view(np.uint64)


def _wide(rows: np.ndarray, length: int, beyond: int | None = None) -> np.ndarray:
    """Rows up to this length: the first one again, or a slot that there is not."""
    fill = rows[:1] if beyond is None else np.array([beyond], rows.dtype)
    return np.concatenate([rows, np.broadcast_to(fill, (length - len(rows), *rows.shape[1:]))])


def _bytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return int(np.prod(shape, dtype=int)) * dtype.itemsize
