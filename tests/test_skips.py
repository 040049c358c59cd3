"""Nothing is skipped in silence."""

import os
import subprocess
import sys

import pytest

TESTS = """
import pytest
@pytest.mark.xfail(strict=True)
def test_known(): assert False
def test_passes(): pass
"""
SKIPS = TESTS + "def test_tool(): pytest.skip('no tool')\n"
MODULE = "import pytest\npytest.importorskip('no_such_tool')\n" + TESTS


@pytest.mark.parametrize(("text", "in_ci"), [(TESTS, 0), (SKIPS, 1), (MODULE, 2)])
def test_a_skip_fails_in_ci_alone(tmp_path, text, in_ci):
    path = tmp_path / "test_some.py"
    path.write_text(text)
    plugins = ("-p", "tests.skips", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", *plugins, f"--rootdir={tmp_path}", str(path)]
    for value, code in (("", 5 if text is MODULE else 0), ("true", in_ci)):
        done = subprocess.run(command, env={**os.environ, "CI": value}, capture_output=True, timeout=60)
        assert done.returncode == code, done.stdout.decode()
