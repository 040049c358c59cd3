"""A run on disk: written whole or not at all, checked whole before anything of it is used.

A file is  magic (8) | header length (8) | payload length (8) | SHA-256 (32) | header (JSON) | payload (safetensors),
the digest over both lengths, the header and the payload. Numbers are little-endian. Never pickle.
"""

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from natkal.tabular.errors import CheckpointError, StreamError

MAGIC = b"NATKAL\x00\x01"
FIXED = struct.Struct("<8sQQ32s")
LONGEST_HEADER = 64 << 20
CURRENT = "checkpoint.nk"
PREVIOUS = "checkpoint.previous.nk"


def write(folder: Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Path:
    """Write the next generation: temporary file, fsync, rename, fsync of the folder; the last generation is kept.

    Whatever happens on the way, a whole checkpoint stays on disk.
    """
    from safetensors.numpy import save

    text = json.dumps(header, allow_nan=False, sort_keys=True).encode()
    payload = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    current, temporary = folder / CURRENT, folder / (CURRENT + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(FIXED.pack(MAGIC, len(text), len(payload), _digest(text, payload)))
            file.write(text)
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        if current.exists():
            os.replace(current, folder / PREVIOUS)
        os.replace(temporary, current)
        sync_folder(folder)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StreamError(
            f"{current}: cannot be written ({error.strerror or error}); the last checkpoint is kept"
        ) from error
    return current


def sync_folder(folder: Path) -> None:
    """Make renames in the folder last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(text: bytes, payload: bytes) -> bytes:
    digest = hashlib.sha256(struct.pack("<QQ", len(text), len(payload)))
    digest.update(text)
    digest.update(payload)
    return digest.digest()


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a checkpoint that is whole; a `CheckpointError` says what is wrong with any other."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            fixed = file.read(FIXED.size)
            if len(fixed) < FIXED.size:
                raise CheckpointError(f"{path}: not a checkpoint, it has {size} bytes")
            magic, text_size, payload_size, digest = FIXED.unpack(fixed)
            if magic != MAGIC:
                raise CheckpointError(f"{path}: not a checkpoint of this version of natkal")
            if text_size > LONGEST_HEADER or FIXED.size + text_size + payload_size != size:
                raise CheckpointError(
                    f"{path}: damaged, its lengths add up to {FIXED.size + text_size + payload_size:,} bytes "
                    f"and it has {size:,}"
                )
            text, payload = file.read(text_size), file.read(payload_size)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
    if _digest(text, payload) != digest:
        raise CheckpointError(f"{path}: damaged, its SHA-256 is not the one it was written with")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: its header is not JSON") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: its header is not a JSON object")
    return header, _arrays(path, payload)


def _arrays(path: Path, payload: bytes) -> dict[str, np.ndarray]:
    """Views into the payload; its own header is checked against its length first."""
    from safetensors import SafetensorError, deserialize

    try:
        entries = deserialize(payload)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: its payload is not whole: {error}") from error
    arrays = {}
    for name, entry in entries:
        dtype = DTYPES.get(entry["dtype"])
        if dtype is None:
            raise CheckpointError(f"{path}: array {name!r} has dtype {entry['dtype']}, which natkal never writes")
        arrays[name] = np.frombuffer(entry["data"], dtype).reshape(entry["shape"])
    return arrays


DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}


def find(folder: Path) -> tuple[Path, dict[str, Any], dict[str, np.ndarray], str | None] | None:
    """The newest whole checkpoint of a run, with a warning where that is the previous one; None where there is none."""
    warning = None
    for name in (CURRENT, PREVIOUS):
        path = folder / name
        if not path.exists():
            continue
        try:
            header, arrays = read(path)
        except CheckpointError as error:
            if name == PREVIOUS or not (folder / PREVIOUS).exists():
                raise
            warning = f"{error}; going back to the checkpoint before it"
            continue
        return path, header, arrays, warning
    return None


def exists(folder: Path) -> bool:
    """Whether the folder holds a run."""
    return any((folder / name).exists() for name in (CURRENT, PREVIOUS))


def remove(folder: Path) -> None:
    """Take a run's checkpoints away."""
    for name in (CURRENT, PREVIOUS):
        (folder / name).unlink(missing_ok=True)


def match(
    path: Path, arrays: Mapping[str, np.ndarray], template: Mapping[str, tuple[tuple[int, ...], np.dtype]]
) -> None:
    """Refuse arrays that are not exactly, by name, shape and dtype, those the settings call for."""
    missing = sorted(set(template) - set(arrays))
    extra = sorted(set(arrays) - set(template))
    if missing or extra:
        raise CheckpointError(f"{path}: its arrays are not this model's (missing {missing[:3]}, unknown {extra[:3]})")
    for name, (shape, dtype) in template.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != dtype:
            raise CheckpointError(
                f"{path}: array {name!r} is {array.dtype} {array.shape}, the settings call for {dtype} {shape}"
            )
