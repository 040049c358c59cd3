"""One file format, checked whole before anything of it is used. Never pickle; no JAX.

A file is  magic (8) | header length (8) | payload length (8) | SHA-256 (32) | header (JSON) | payload (safetensors),
the digest over both lengths, the header and the payload. Numbers are little-endian. It is written to a temporary file,
synced and renamed, so that a whole file stays on disk whatever happens on the way.
"""

import hashlib
import json
import os
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

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
    """Make renames in the folder last through a power cut; Windows opens no folder, and syncs renames itself."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
