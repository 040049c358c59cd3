"""Tables change in every way, through every door: `NATKAL_EXAMPLES=5000 pytest tests/changing/test_machine.py`.

Without that variable the examples are few and always the same. NATKAL_COUNT=FILE counts failures instead of stopping at
the first and shrinking it: one JSON line for each example in the file.
"""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.changing.machine import COUNT, QUICK, Changing, examples, reproduction

pytestmark = [pytest.mark.float64, pytest.mark.filterwarnings("default")]


class Quick(Changing):
    """What compiles quickly."""

    learners = QUICK


def run(kind: type[Changing], count: int) -> None:
    """So many examples of a machine."""
    chosen = settings(
        max_examples=examples(count),
        stateful_step_count=8,
        deadline=None,
        database=None,
        derandomize="NATKAL_EXAMPLES" not in os.environ,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,) if COUNT else (Phase.generate, Phase.shrink),
    )
    try:
        run_state_machine_as_test(kind, settings=chosen)
    except Exception as error:
        error.add_note(reproduction(Changing.last))
        raise
    if COUNT:
        found = [json.loads(line) for line in Path(COUNT).read_text().splitlines()]
        failed = sum("error" in one for one in found)
        assert not failed, f"{failed} of {len(found)} examples failed; see {COUNT}"


def test_tables_change() -> None:
    run(Quick, 25)


@pytest.mark.slow
def test_tables_change_with_every_learner() -> None:
    run(Changing, 300)
