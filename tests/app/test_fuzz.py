"""Random and mutated files are read or refused with a sentence; none ends in another exception or takes long."""

import re
from pathlib import Path

import pytest

from tests.app.fuzz import SECONDS, fuzzed, read_through, time_limit

UNFORESEEN = re.compile(r": [A-Z]\w*(?:Error|Exception): ")
"""How `located` words a failure that no reader foresaw; of damaged columnar files pyarrow has too many to list."""


def run(folder: Path, seeds: range) -> int:
    """How many of these files were read."""
    read = 0
    for seed in seeds:
        path = fuzzed(folder, seed)
        with time_limit(SECONDS):
            outcome = read_through(path, seed)
        if path.suffix not in (".parquet", ".arrow"):
            assert not UNFORESEEN.search(outcome), (seed, outcome)
        read += outcome == "read"
        path.unlink()
    return read


def test_two_hundred_fuzzed_files(tmp_path):
    assert 40 < run(tmp_path, range(200)) < 160


@pytest.mark.slow
def test_two_thousand_fuzzed_files(tmp_path):
    run(tmp_path, range(1000, 3000))
