"""A real browser for the tests of pages; they are skipped where there is none, which fails in CI."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --dump-dom --enable-logging=stderr"
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")


def answer_of(page: Path, width: int, profile: Path) -> Any:
    """What the page's script leaves as `data-answer`, in a window of this width; nothing may be logged."""
    command = [str(BROWSER), *FLAGS.split(), f"--window-size={width},900", f"--user-data-dir={profile}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    found = re.search(r'data-answer="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    assert "CONSOLE" not in done.stderr
    return json.loads(html.unescape(found.group(1)))
