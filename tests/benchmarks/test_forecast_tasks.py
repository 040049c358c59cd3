"""The protocol of the published table: the simplest models have their published figures.

Collected where NATKAL_FORECASTS names the folder of the series (tests/conftest.py).
"""

import pytest
from benchmarks.forecast_tasks import SIMPLE, published, scores, windows


@pytest.mark.parametrize("model", sorted(SIMPLE))
def test_simple_models_have_their_published_figures(model):
    asked = windows()
    found = scores(asked, [SIMPLE[model](one.before, len(one.came)) for one in asked])
    assert found == pytest.approx(published()[model], rel=1e-6)
