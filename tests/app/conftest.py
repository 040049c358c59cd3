"""Streams always run in float64, so these tests need no float32 pass."""

import pytest

from natkal.app.session.runtime import stream_numbers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/stream/" in str(item.path) or "/tests/report/" in str(item.path):
            item.add_marker(pytest.mark.float64)


@pytest.fixture(autouse=True)
def _double():
    with stream_numbers():
        yield
