"""A plugin: in CI (`CI=true`) a test that is skipped, because a tool is missing, fails."""

import os
from collections.abc import Generator
from typing import Any

import pytest


def _failed(report: Any) -> Any:
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: skipped, and in CI nothing is: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """A test or its set-up."""
    return _failed((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    """A module that is skipped as a whole."""
    return _failed((yield))
