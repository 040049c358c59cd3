"""States of learners on disk, in the format of `file.py`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal
from natkal.storage.file import StorageError, check_arrays, read_file, write_file


def save(path: str | Path, learner: Any, state: Any) -> Path:
    """Write a learner's state to a file, whole or not at all.

    The file holds numbers and the learner's description, not its code: `load` needs the same learner again. A state
    that is spread over a mesh of devices becomes a folder; every process calls `save` with one that all of them see.
    """
    from natkal.storage.sharded import is_spread, save_spread

    path = Path(path)
    if is_spread(state):
        return save_spread(path, learner, state)
    if not path.parent.is_dir():
        raise StorageError(f"{path}: there is no folder {path.parent}")
    arrays, expected = state_arrays(state), array_template(jax.eval_shape(learner.init))
    if set(arrays) != set(expected):  # shapes may differ: many states, stacked
        got = type(state).__name__
        raise StorageError(f"{path}: not saved, the state is {got} and not what this learner's init gives")
    write_file(path, {"natkal": natkal.__version__, "learner": repr(learner)}, arrays)
    return path


def load(path: str | Path, learner: Any) -> Any:
    """The state that `save` wrote, for the learner it was saved from; a `StorageError` says what is wrong."""
    path = Path(path)
    if path.is_dir():
        from natkal.storage.sharded import MANIFEST, load_spread

        if not (path / MANIFEST).exists():
            raise StorageError(f"{path}: a folder without a saved state; nk.load_run opens the folder of a run")
        return load_spread(path, learner)
    header, arrays = read_file(path)
    template = jax.eval_shape(learner.init)
    try:
        check_arrays(path, arrays, array_template(template))
    except StorageError as error:
        raise StorageError(f"{error}; it was saved from {header.get('learner')}") from error
    return restored(template, arrays)


def state_arrays(state: Any) -> dict[str, np.ndarray]:
    """Every leaf of a pytree by its path, on the host; random keys as their numbers."""
    return {name: np.asarray(leaf) for name, leaf in _named(_plain(state)).items()}


def array_template(state: Any) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Name, shape and dtype of each array of such a pytree, which may be abstract."""
    plain = jax.eval_shape(_plain, state)
    return {name: (tuple(leaf.shape), np.dtype(leaf.dtype)) for name, leaf in _named(plain).items()}


def restored(template: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """A pytree like `template`, which may be abstract, from arrays that match it."""
    names = list(_named(jax.eval_shape(_plain, template)))
    leaves, structure = jax.tree.flatten(template)
    values = jax.device_put([arrays[name] for name in names], may_alias=False)
    found = [
        jax.random.wrap_key_data(value) if _is_key(leaf) else value for value, leaf in zip(values, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, found)


def named_leaves(state: Any) -> dict[str, Any]:
    """Every leaf by its path, where it lies; random keys as their numbers."""
    return _named(jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, state))


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(state: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else jnp.asarray(leaf), state)


def _named(state: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(state)}
