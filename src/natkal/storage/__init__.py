"""Files that are whole or not there."""

from natkal.storage.file import StorageError, load, save

__all__ = ["StorageError", "load", "save"]
