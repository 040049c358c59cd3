"""A state that is spread over devices and processes, on disk: each process its own rows, one manifest.

A folder holds NumPy files with runs of rows of the arrays that are spread, and a manifest in the format of `storage.py`
with everything else: the arrays that every process has whole, and for each run of rows its file and SHA-256 digest. The
manifest is replaced once every process has written its rows, so a crash leaves the save before it. A state is read on
any number of devices: each process reads the rows that it is to hold. Rows beyond those of the matrix, which fill the
devices up, are zeros. Of a vector in runs (`curvature.cut.Packed`) the runs are written, by their places in the vector.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal
from natkal.curvature.cut import Packed, Run
from natkal.storage.file import StorageError, array_digest, read_file, sync_folder, write_file
from natkal.storage.states import named_leaves

MANIFEST = "manifest.natkal"


def is_spread(state: Any) -> bool:
    """Whether some array of the state lies in parts on several devices."""
    return any(_spread(leaf) for leaf in jax.tree.leaves(state))


def save_spread(path: Path, learner: Any, state: Any) -> Path:
    """Write the state; every process calls it, with a folder that all of them see."""
    path.mkdir(parents=True, exist_ok=True)
    generation = _generation(path) + 1
    rank = jax.process_index()
    whole, pieces, in_runs = {}, [], _packed_runs(state)

    def write(name: str, first: int, data: np.ndarray, shape: Sequence[int]) -> None:
        file = f"rows-{generation}-{len(pieces)}-of-{rank}.npy"
        _write_array(path / file, data)
        pieces.append([name, first, first + len(data), file, array_digest(data), list(shape), str(data.dtype)])

    for name, leaf in named_leaves(state).items():
        if not _spread(leaf):
            whole[name] = np.asarray(leaf.addressable_data(0) if isinstance(leaf, jax.Array) else leaf)
            continue
        for shard in leaf.addressable_shards:
            if shard.replica_id:
                continue
            _check_by_rows(name, leaf, shard.index)
            first, last, _ = shard.index[0].indices(leaf.shape[0])
            data = np.ascontiguousarray(shard.data)
            if name not in in_runs:
                write(name, first, data, leaf.shape)
                continue
            for device in range(first, last):
                at = 0
                for begin, end in in_runs[name][device]:
                    write(name, begin, data[device - first, at : at + end - begin], [_length(in_runs[name])])
                    at += end - begin
    listed = path / f"pieces-{generation}-{rank}.json"
    listed.write_text(json.dumps(pieces))
    _together(f"natkal pieces {generation}")
    every = []
    if rank == 0:
        found = sorted(path.glob(f"pieces-{generation}-*.json"))
        every = [piece for file in found for piece in json.loads(file.read_text())]
        header = {
            "natkal": natkal.__version__,
            "learner": repr(learner),
            "generation": generation,
            "pieces": every,
        }
        write_file(path / MANIFEST, header, whole)
    _together(f"natkal manifest {generation}")
    listed.unlink(missing_ok=True)
    if rank == 0:
        kept = {piece[3] for piece in every}
        for file in path.glob("rows-*.npy"):
            if file.name not in kept:
                file.unlink(missing_ok=True)
    return path


def load_spread(path: Path, learner: Any) -> Any:
    """The state that was saved, on the devices that this learner's is spread over."""
    header, whole = read_file(path / MANIFEST)
    saved: dict[str, list[Any]] = {}
    for piece in header["pieces"]:
        saved.setdefault(piece[0], []).append(piece[1:])
    made = learner.init()
    leaves, structure = jax.tree.flatten(made)
    names, in_runs = list(named_leaves(made)), _packed_runs(made)
    del made
    found = []
    for position, name in enumerate(names):
        leaf, leaves[position] = leaves[position], None
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        shape, dtype = (tuple(leaf.shape), leaf.dtype) if not is_key else (None, None)
        sharding = leaf.sharding
        del leaf
        if name in whole and name not in saved:
            value = whole[name]
            if not is_key and (value.shape != shape or value.dtype != dtype):
                raise StorageError(f"{path}: array {name!r} is {value.dtype} {value.shape}, not {dtype} {shape}")
            found.append(jax.random.wrap_key_data(jnp.array(value)) if is_key else jnp.array(value))
        elif name in saved and shape is not None:
            if name in in_runs:
                read = _run_reader(path, name, saved[name], in_runs[name], shape, dtype)
            else:
                read = _reader(path, name, saved[name], shape, dtype)
            found.append(jax.make_array_from_callback(shape, sharding, read))
        else:
            raise StorageError(f"{path}: has no array {name!r}; it was saved from {header.get('learner')}")
    return jax.tree.unflatten(structure, found)


def _reader(path: Path, name: str, pieces: list[Any], shape: Sequence[int], dtype: Any) -> Callable[[Any], Any]:
    """Rows of an array by their index, from the files that hold them; zeros beyond the last one."""
    saved_shape = tuple(map(int, pieces[0][4]))
    if len(saved_shape) != len(shape) or saved_shape[1:] != tuple(shape[1:]) or np.dtype(pieces[0][5]) != dtype:
        raise StorageError(f"{path}: array {name!r} is {pieces[0][5]} {saved_shape}, not {dtype} {shape}")
    size = shape[1] if len(shape) > 1 else min(saved_shape[0], shape[0])
    covered = sorted((int(first), int(last)) for first, last, *_ in pieces)
    if [first for first, _ in covered] != [0, *(last for _, last in covered[:-1])] or covered[-1][1] < size:
        raise StorageError(f"{path}: the rows of array {name!r} are not all there")

    def read(index: Any) -> np.ndarray:
        start, stop, _ = index[0].indices(shape[0])
        rows = np.zeros((stop - start, *shape[1:]), dtype)
        for first, last, file, digest, *_ in pieces:
            low, high = max(start, int(first)), min(stop, int(last), size)
            if low < high:
                data = _read_array(path / file, digest)
                rows[low - start : high - start] = data[low - int(first) : high - int(first)]
        return rows

    return read


def _run_reader(
    path: Path, name: str, pieces: list[Any], runs: tuple[tuple[Run, ...], ...], shape: Sequence[int], dtype: Any
) -> Callable[[Any], Any]:
    """Rows of an array that holds runs of a long vector, whatever runs the vector was written in."""
    saved, wanted = int(pieces[0][4][0]), _length(runs)
    if saved != wanted:
        raise StorageError(f"{path}: array {name!r} holds {saved:,} numbers, and this learner has {wanted:,}")
    vector = _reader(path, name, pieces, (wanted,), dtype)

    def read(index: Any) -> np.ndarray:
        start, stop, _ = index[0].indices(shape[0])
        rows = np.zeros((stop - start, shape[1]), dtype)
        for row, device in enumerate(range(start, stop)):
            own = np.concatenate([vector((slice(first, last),)) for first, last in runs[device]])
            rows[row, : len(own)] = own
        return rows

    return read


def _packed_runs(state: Any) -> dict[str, tuple[tuple[Run, ...], ...]]:
    """Of each vector in runs the name of its array, and its runs."""
    nodes = jax.tree.leaves_with_path(state, is_leaf=lambda node: isinstance(node, Packed))
    return {f"{jax.tree_util.keystr(path)}.numbers": node.runs for path, node in nodes if isinstance(node, Packed)}


def _length(runs: tuple[tuple[Run, ...], ...]) -> int:
    return max(last for own in runs for _, last in own)


def _spread(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and len(leaf.sharding.device_set) > 1 and not leaf.is_fully_replicated


def _check_by_rows(name: str, leaf: Any, index: Any) -> None:
    if any(part.indices(side) != (0, side, 1) for part, side in zip(index[1:], leaf.shape[1:], strict=True)):
        raise StorageError(f"{name}: is spread by something else than its rows, which natkal does not save")


def _generation(path: Path) -> int:
    if not (path / MANIFEST).exists():
        return 0
    return int(read_file(path / MANIFEST)[0]["generation"])


def _write_array(path: Path, data: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, data, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def _read_array(path: Path, digest: str) -> np.ndarray:
    try:
        data = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    if array_digest(data) != digest:
        raise StorageError(f"{path}: damaged, its SHA-256 is not the one it was written with")
    return data


def _together(what: str) -> None:
    """Wait until every process is here."""
    if jax.process_count() > 1:
        from jax.experimental.multihost_utils import sync_global_devices

        sync_global_devices(what)
