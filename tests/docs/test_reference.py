"""Every name in the reference exists, so that the site can be built."""

import importlib
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "api").glob("*.md"))
LINES = [line for page in PAGES for line in page.read_text().splitlines()]
NAMES = {line[4:].strip() for line in LINES if line.startswith("::: ")}


def found(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError as error:
            if not ".".join(parts[:cut]).startswith(error.name or ""):
                return True  # a module that needs an extra
            continue
        for part in parts[cut:]:
            if not hasattr(value, part) and part not in getattr(value, "__annotations__", {}):
                return False
            value = getattr(value, part, None)
        return True
    return False


def test_the_reference_names_what_exists() -> None:
    assert len(NAMES) > 50
    assert not [name for name in sorted(NAMES) if not found(name)]


def test_links_to_the_reference_have_a_target() -> None:
    links = {name for page in DOCS.rglob("*.md") for name in re.findall(r"\]\[(natkal[\w.]+)\]", page.read_text())}
    assert len(links) > 20
    assert not sorted(links - NAMES)
