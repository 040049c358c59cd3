"""`python -m benchmarks streams`: `natkal learn` at its defaults against rivals at their best setting in hindsight."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.streams.data import GROUPS, stream

PARTS = tuple(GROUPS)
OPTIONS = {
    "cache": ("", "run the rivals instead of natkal, keep their scores in this folder, and rewrite rivals.json"),
}


def run_part(part: str, report: Callable[[str], None], cache: str = "") -> dict[str, Any]:
    """The streams of one group."""
    from benchmarks.streams import rivals

    if cache:
        for name in GROUPS[part]:
            rivals.run(stream(name), Path(cache), report)
        rivals.condense(Path(cache))
    return {"rows": []}


def tables(results: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    yield from ()
