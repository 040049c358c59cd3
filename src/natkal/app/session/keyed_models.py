"""One model, or one for each key: the state on the device, and its way to and from a checkpoint."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.drivers.fleet import spread
from natkal.tabular.loop import Feed, Loop, Pending
from natkal.typing import Params

FIRST_SLOTS = 16


class Fleet:
    """The states of all models, stacked where there are keys. Every model of a fleet starts from the same place.

    Rows of all keys go through one compiled call in their order; each touches its own model's slice in place, which
    needs no balance between the keys and gives each model the same bits as if it were alone. `nk.fleet` is faster where
    many keys have rows at once, but steps them together or in turn as the rows of a call happen to fall: its last bits
    depend on where the calls end, and a run that was killed could not be continued to the same ones.
    """

    def __init__(self, loop: Loop, params: Params, seed: int, *, keyed: bool):
        self._loop = loop
        begin = jax.jit(lambda: loop.init(params, seed))  # as one program: its many small parts compile slowly
        self._start = begin()
        self._keyed = keyed
        self.keys: dict[str, int] = {}
        self.state: Any = spread(self._start, FIRST_SLOTS) if keyed else begin()

    def slots(self, keys: list[str]) -> np.ndarray:
        """The slot of each key, a new one for a key not seen before."""
        for key in keys:
            self.keys.setdefault(key, len(self.keys))
        self._grow()
        return np.array([self.keys[key] for key in keys], np.int32)

    def run(self, feed: Feed) -> Pending:
        """Advance through these rows."""
        self.state, pending = self._loop.run(self.state, feed)
        return pending

    def predict(self, feed: Feed, keys: list[str]) -> np.ndarray:
        """Predictions without learning; a key never seen gets what every model starts from."""
        if self._keyed and self._start.learner.carry == ():
            free = len(self.keys)  # one slot serves all of them, as nothing happens to it
            self._grow(free + 1)
            feed = feed._replace(slots=np.array([self.keys.get(key, free) for key in keys], np.int32))
        elif self._keyed:
            feed = feed._replace(slots=self.slots(keys))
        self.state, summary = self._loop.predict(self.state, feed)
        return summary

    def one(self, slot: int | None = None) -> Any:
        """The state of one model: the only one, or that of a slot."""
        return jax.tree.map(lambda leaf: leaf[slot], self.state) if self._keyed else self.state

    def arrays(self) -> dict[str, np.ndarray]:
        """Every number of the state, by name, on the host."""
        return {name: np.asarray(leaf) for name, leaf in _named(_plain(self.state)).items()}

    def template(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Name, shape and dtype of each array of a checkpoint with these keys."""
        one = _named(_plain(self._start if self._keyed else self.state))
        slots = (_enough(FIRST_SLOTS, len(self.keys)),) if self._keyed else ()
        return {name: ((*slots, *leaf.shape), np.dtype(leaf.dtype)) for name, leaf in one.items()}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The state from a checkpoint's arrays, which match `template`."""
        names = list(_named(_plain(self.state)))
        leaves, structure = jax.tree.flatten(self.state)
        restored = []
        for name, leaf in zip(names, leaves, strict=True):
            value = jnp.array(arrays[name])
            restored.append(jax.random.wrap_key_data(value) if _is_key(leaf) else value)
        self.state = jax.tree.unflatten(structure, restored)

    def _grow(self, least: int = 0) -> None:
        """Twice the slots, as often as needed."""
        if not self._keyed:
            return
        have = jax.tree.leaves(self.state)[0].shape[0]
        need = _enough(have, max(len(self.keys), least))
        if need > have:
            more = spread(self._start, need - have)
            self.state = jax.tree.map(lambda old, new: jnp.concatenate([old, new]), self.state, more)


def _enough(slots: int, keys: int) -> int:
    while slots < keys:
        slots *= 2
    return slots


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(state: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, state)


def _named(state: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(state)}
