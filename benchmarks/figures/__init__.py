"""`python -m benchmarks figures PART --results FILE`: put what other benchmarks measured into the documents.

FILE holds the JSON lines that `python -m benchmarks NAME --json` printed, of one benchmark or of several; a later line
replaces an earlier one of the same part. Needs matplotlib.
"""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
SOURCES = {"bandits": "bandits", "cost": "dense", "curvature": "", "learning": "learning", "questions": "questions"}
"""The benchmark that each part draws; the part `curvature` measures by itself."""
PARTS = tuple(SOURCES)
OPTIONS = {"results": ("results.jsonl", "file of JSON lines from other benchmarks")}


def read(path: str, name: str) -> dict[str, Any]:
    """The parts of a benchmark in a file of JSON lines."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return {line["part"]: line for line in lines if line["name"] == name}


def run_part(part: str, report: Callable[[str], None], results: str) -> dict[str, Any]:
    """Draw or write one page's part."""
    source = SOURCES[part]
    found = read(results, source) if source else {}
    if source and not found:
        raise SystemExit(f"{results} has no results of {source}: python -m benchmarks {source} --json >> {results}")
    written = import_module(f"benchmarks.figures.{part}").write(found, DOCS)
    return {"rows": [{"written": str(path.relative_to(DOCS.parent))} for path in written]}


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """The files that were written."""
    rows = [row for result in results.values() for row in result["rows"]]
    return [("Written", rows, ("written",))]


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def between_marks(page: Path, mark: str, text: str) -> None:
    """Replace what a page has between `<!-- mark -->` and `<!-- end of mark -->`."""
    first, last = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
    before, rest = page.read_text().split(first)
    page.write_text(before + first + text + "\n" + last + rest.split(last)[1])
