"""One precision per run: float64 by default, float32 with NATKAL_DTYPE=float32; strict rank promotion in both."""

import functools
import gc
import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "0")  # commands would keep what they compile, also of these tests

import jax
import pytest

from tests.skips import pytest_make_collect_report, pytest_runtest_makereport

collect_ignore = [
    "curvature/sharded_worker.py",
    "docs/run_pages.py",
    "curvature/spread_worker.py",
    "stream/hosts_worker.py",
]  # programs of their own
if "NATKAL_FORECASTS" not in os.environ:
    collect_ignore.append("benchmarks/test_forecast_tasks.py")  # needs series that are not part of the project

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]
FLOAT64 = os.environ.get("NATKAL_DTYPE", "float64") == "float64"
jax.config.update("jax_enable_x64", FLOAT64)
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the float32 pass, leave out the tests that state a float64 claim."""
    if FLOAT64:
        return
    kept = [item for item in items if "float64" not in item.keywords]
    config.hook.pytest_deselected(items=[item for item in items if "float64" in item.keywords])
    items[:] = kept


MOST_PAGES = (3 << 30) // os.sysconf("SC_PAGE_SIZE")
"""Memory of a worker, beyond which it forgets its compiled programs at the end of a test."""


@pytest.fixture(autouse=True)
def _few_programs() -> Iterator[None]:
    """A worker compiles thousands of programs; those of earlier tests are hardly ever used again."""
    yield
    try:
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1])
    except OSError:
        return
    if resident > MOST_PAGES:
        for kept in gc.get_objects():
            if isinstance(kept, functools._lru_cache_wrapper) and kept.__module__.startswith("natkal"):
                kept.cache_clear()
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="session")
def rtol() -> float:
    """How close two exact computations of the same number come in this run's precision."""
    return 1e-10 if FLOAT64 else 2e-4


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What other libraries' own checks counted, one line each: `record_property("checks", ...)` in a test."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", ()):
            if name == "checks":
                terminalreporter.write_line(f"checks: {value}")
