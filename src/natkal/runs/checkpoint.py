"""Checkpoints of a run: two generations, each a file of `storage/file.py`, written whole or not at all."""

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from natkal.errors import CheckpointError, StreamError
from natkal.storage.file import StorageError, read_file, write_file

CURRENT = "checkpoint.nk"
PREVIOUS = "checkpoint.previous.nk"
NEXT = f"checkpoint.next.{uuid.uuid4().hex[:8]}.nk"
"""Of this process alone: members of a group may write to one folder."""


def write(folder: Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Path:
    """Write the next generation; the last one is kept. Whatever happens on the way, a whole checkpoint stays."""
    current, following = folder / CURRENT, folder / NEXT
    try:
        write_file(following, header, arrays)
        if current.exists():
            os.replace(current, folder / PREVIOUS)
        os.replace(following, current)
    except OSError as error:
        following.unlink(missing_ok=True)
        raise StreamError(
            f"{current}: cannot be written ({error.strerror or error}); the last checkpoint is kept"
        ) from error
    return current


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a checkpoint that is whole; a `CheckpointError` says what is wrong with any other."""
    try:
        return read_file(path)
    except StorageError as error:
        raise CheckpointError(str(error)) from error


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
    sweep(folder)
    for name in (CURRENT, PREVIOUS):
        (folder / name).unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Take away what writers that were killed have left unfinished. For a process that goes on with the run."""
    for path in folder.glob("checkpoint.next.*.nk"):
        path.unlink(missing_ok=True)
