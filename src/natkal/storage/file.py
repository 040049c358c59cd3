"""States and runs on disk: one file format, checked whole before anything of it is used. Never pickle.

A file is  magic (8) | header length (8) | payload length (8) | SHA-256 (32) | header (JSON) | payload (safetensors),
the digest over both lengths, the header and the payload. Numbers are little-endian. It is written to a temporary file,
synced and renamed, so that a whole file stays on disk whatever happens on the way.
"""

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal

MAGIC = b"NATKAL\x00\x02"
FIXED = struct.Struct("<8sQQ32s")
LONGEST_HEADER_BYTES = 64 << 20
DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
Template = Mapping[str, tuple[tuple[int, ...], np.dtype]]


class StorageError(Exception):
    """A file is damaged, or is not the one asked for; the message says which and why."""


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


def write_file(path: Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Temporary file, fsync, rename, fsync of the folder; an `OSError` leaves what was there before."""
    from safetensors.numpy import save as encode

    text = json.dumps(header, allow_nan=False, sort_keys=True).encode()
    payload = encode({name: np.asarray(array, order="C") for name, array in arrays.items()})
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(FIXED.pack(MAGIC, len(text), len(payload), _digest(text, payload)))
            file.write(text)
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a file that is whole."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            fixed = file.read(FIXED.size)
            if len(fixed) < FIXED.size:
                raise StorageError(f"{path}: not written by natkal, it has {size} bytes")
            magic, text_size, payload_size, digest = FIXED.unpack(fixed)
            if magic != MAGIC:
                raise StorageError(f"{path}: not written by this version of natkal")
            if text_size > LONGEST_HEADER_BYTES or FIXED.size + text_size + payload_size != size:
                raise StorageError(
                    f"{path}: damaged, its lengths add up to {FIXED.size + text_size + payload_size:,} bytes "
                    f"and it has {size:,}"
                )
            text, payload = file.read(text_size), file.read(payload_size)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error
    if _digest(text, payload) != digest:
        raise StorageError(f"{path}: damaged, its SHA-256 is not the one it was written with")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path}: its header is not JSON") from error
    if not isinstance(header, dict):
        raise StorageError(f"{path}: its header is not a JSON object")
    return header, _arrays(path, payload)


def array_digest(array: np.ndarray) -> str:
    """The SHA-256 digest of an array's numbers."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def sync_folder(folder: Path) -> None:
    """Make renames in the folder last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def state_arrays(state: Any) -> dict[str, np.ndarray]:
    """Every leaf of a pytree by its path, on the host; random keys as their numbers."""
    return {name: np.asarray(leaf) for name, leaf in _named(_plain(state)).items()}


def array_template(state: Any) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Name, shape and dtype of each array of such a pytree, which may be abstract."""
    plain = jax.eval_shape(_plain, state)
    return {name: (tuple(leaf.shape), np.dtype(leaf.dtype)) for name, leaf in _named(plain).items()}


def check_arrays(path: Path, arrays: Mapping[str, np.ndarray], template: Template) -> None:
    """Refuse arrays that are not exactly, by name, shape and dtype, those of the template."""
    missing = sorted(set(template) - set(arrays))
    extra = sorted(set(arrays) - set(template))
    if missing or extra:
        raise StorageError(f"{path}: its arrays are not this learner's (missing {missing[:3]}, unknown {extra[:3]})")
    for name, (shape, dtype) in template.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != dtype:
            raise StorageError(f"{path}: array {name!r} is {array.dtype} {array.shape}, not {dtype} {shape}")


def restored(template: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """A pytree like `template`, which may be abstract, from arrays that match it."""
    names = list(_named(jax.eval_shape(_plain, template)))
    leaves, structure = jax.tree.flatten(template)
    found = []
    for name, leaf in zip(names, leaves, strict=True):
        value = jnp.array(arrays[name])
        found.append(jax.random.wrap_key_data(value) if _is_key(leaf) else value)
    return jax.tree.unflatten(structure, found)


def _digest(text: bytes, payload: bytes) -> bytes:
    digest = hashlib.sha256(struct.pack("<QQ", len(text), len(payload)))
    digest.update(text)
    digest.update(payload)
    return digest.digest()


def _arrays(path: Path, payload: bytes) -> dict[str, np.ndarray]:
    """Views into the payload; its own header is checked against its length first."""
    from safetensors import SafetensorError, deserialize

    try:
        entries = deserialize(payload)
    except SafetensorError as error:
        raise StorageError(f"{path}: its payload is not whole: {error}") from error
    arrays = {}
    for name, entry in entries:
        dtype = DTYPES.get(entry["dtype"])
        if dtype is None:
            raise StorageError(f"{path}: array {name!r} has dtype {entry['dtype']}, which natkal never writes")
        arrays[name] = np.frombuffer(entry["data"], dtype).reshape(entry["shape"])
    return arrays


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(state: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else jnp.asarray(leaf), state)


def named_leaves(state: Any) -> dict[str, Any]:
    """Every leaf by its path, where it lies; random keys as their numbers."""
    return _named(jax.tree.map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, state))


def _named(state: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(state)}
