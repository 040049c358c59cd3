"""Every name in the reference exists, so that the site can be built."""

import importlib
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "api").glob("*.md"))
NAMES = sorted(
    {line[4:].strip() for page in PAGES for line in page.read_text().splitlines() if line.startswith("::: ")}
)


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


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_names_what_exists(name: str) -> None:
    assert found(name)
