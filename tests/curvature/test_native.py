"""The cache of compiled kernels: only what was built here, by this user, is loaded; a hanging compiler is stopped."""

import stat
import subprocess
import time
from pathlib import Path

import pytest

from natkal.curvature.kernels import native


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that writes its arguments as the library and counts its calls; a cache of its own."""
    script = tmp_path / "cxx"
    script.write_text(
        '#!/bin/sh\ncase "$*" in *-shared*) echo . >> "$0.calls";; esac\nfor last; do :; done\necho library > "$last"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("NATKAL_CACHE", str(tmp_path / "cache"))
    return script


def calls(compiler: Path) -> int:
    return len(Path(f"{compiler}.calls").read_text().split())


def test_a_library_that_was_changed_or_truncated_is_built_anew(compiler: Path) -> None:
    library = native._built()
    whole = library.read_bytes()
    assert native._built() == library
    assert calls(compiler) == 1
    for number, damage in enumerate((whole + b"more", whole[:4], b""), start=2):
        library.write_bytes(damage)
        assert native._built().read_bytes() == whole
        assert calls(compiler) == number
    library.with_suffix(".sha256").unlink()
    native._built()
    assert calls(compiler) == 5


def test_a_folder_that_others_may_write_is_refused(compiler: Path) -> None:
    folder = native.private_folder("kernels")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o770)
    with pytest.raises(PermissionError, match="of this user alone"):
        native._built()
    folder.rmdir()
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="of this user alone"):
        native._built()


def test_nobody_waits_for_a_compiler_that_hangs(
    compiler: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The process goes on without it; the script that started it ends it in the end."""
    compiler.write_text('#!/bin/sh\necho $$ >> "$0.pid"\nexec sleep 600\n')
    monkeypatch.setattr(native, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(native, "BUILD_SECONDS", 0.4)
    monkeypatch.setattr(native, "GIVE_UP_SECONDS", 3)
    with pytest.raises(subprocess.TimeoutExpired):
        native._built()
    said = capsys.readouterr().err
    assert "building its kernels" in said
    assert "going on without" in said
    pids = Path(f"{compiler}.pid")
    for _ in range(600):
        time.sleep(0.1)
        if pids.exists() and not any(map(is_alive, pids.read_text().split())):
            return
    raise AssertionError("the compiler still runs")


def is_alive(process: str) -> bool:
    """Whether a process runs; one that has ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
