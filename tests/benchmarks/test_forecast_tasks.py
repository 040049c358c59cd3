"""The protocol of the published table: the simplest models have their published figures."""

import os

import pytest
from benchmarks.forecast_tasks import FOLDER, SIMPLE, published, scores, windows


@pytest.mark.skipif(FOLDER not in os.environ, reason=f"{FOLDER} names no folder of series")
@pytest.mark.parametrize("model", sorted(SIMPLE))
def test_simple_models_have_their_published_figures(model):
    asked = windows()
    found = scores(asked, [SIMPLE[model](one.before, len(one.came)) for one in asked])
    assert found == pytest.approx(published()[model], rel=1e-6)
