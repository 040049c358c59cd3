"""What other systems lack is done without."""

import os
import sys

from natkal.storage.file import sync_folder
from natkal.storage.journal import Journal, Record, read_records


def test_a_journal_without_linux_calls(tmp_path, monkeypatch):
    for name in ("fdatasync", "posix_fallocate", "pwrite"):
        monkeypatch.delattr(os, name, raising=False)
    journal = Journal(tmp_path / "log")
    for number in (1, 2):
        journal.add(Record(number, 1, b"row"))
        journal.write(sync=True)
    journal.close()
    assert [record.number for record in read_records(tmp_path / "log", after=0)] == [1, 2]


def test_a_folder_that_cannot_be_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "open", lambda *given: (_ for _ in ()).throw(PermissionError()))
    sync_folder(tmp_path)
