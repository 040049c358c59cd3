"""Tables always run in float64, so these tests need no float32 pass."""

import jax
import pytest


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield
