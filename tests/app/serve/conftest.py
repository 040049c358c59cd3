"""One length of blocks here, so that one program is compiled: `tests/tables/test_live_table.py` has both."""

import pytest

from natkal.tables.engine import live_table


@pytest.fixture(autouse=True, scope="package")
def _one_length():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_table, "MANY_ROWS", live_table.FEW_ROWS)
        yield
