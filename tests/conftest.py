"""One precision per run: float64 by default, float32 with NATKAL_DTYPE=float32; strict rank promotion in both."""

import os
from typing import Any

os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "0")  # commands would keep what they compile, also of these tests

import jax
import pytest

collect_ignore = ["curvature/sharded_worker.py", "docs/run_pages.py"]  # programs of their own

SLOW = (
    "bench/test_learning.py",
    "bench/test_questions.py",
    "cli/test_verify.py::test_a_claim_above_tolerance",
    "cli/test_verify.py::test_json_of_a_filtered_case",
    "cli/test_verify.py::test_table_of_all_cases",
    "curvature/test_kernels.py::test_the_same_under_vmap",
    "curvature/test_registry.py::test_respond_sees",
    "curvature/test_registry.py::test_samples_have",
    "-variances-False]",
    "-variances-True]",
    "engine/test_batch.py::test_few_directions",
    "frontends/test_river.py::test_a_new_feature_or_class_changes_nothing_else[auto]",
    "lower_the_loss[outer]",
    "lower_the_loss[sampled]",
    "engine/test_invariance.py::test_rescaled_inputs",
    "shifted_and_inverted_inputs[layer]",
    "shifted_and_inverted_inputs[neuron]",
    "bit_for_bit[outer]",
    "bit_for_bit[sampled]",
    "models/test_modules.py::test_a_module_is_its_function[nnx",
    "models/test_modules.py::test_a_module_is_its_function[linen",
    "test_exact_ones_are_back_propagation_through_time[diagonal]",
    "test_exact_ones_are_back_propagation_through_time[leaky]",
    "test_exact_ones_are_back_propagation_through_time[linear]",
    "test_exact_ones_are_back_propagation_through_time[lstm]",
    "test_random_ones_are_unbiased",
    "paper/test_recurrent.py::test_certificate[Bernoulli, GRU]",
    "paper/test_recurrent.py::test_certificate[Categorical, linear]",
    "paper/test_verify.py::test_infinite_support",
)
"""One more instance of a claim that a quicker test checks too, or a tool's own test: `make soak` runs these."""

FLOAT64 = os.environ.get("NATKAL_DTYPE", "float64") == "float64"
jax.config.update("jax_enable_x64", FLOAT64)
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow tests; in the float32 pass, leave out the tests that state a float64 claim."""
    broken = [item for item in items if "test_a_broken_formula_is_reported" in item.nodeid]
    for item in items:
        # what is about float32 belongs to the float32 pass
        twice = FLOAT64 and "float32_steps" in item.nodeid
        if twice or item in broken[2:] or any(part in item.nodeid for part in SLOW):
            item.add_marker(pytest.mark.slow)
    if FLOAT64:
        return
    kept = [item for item in items if "float64" not in item.keywords]
    config.hook.pytest_deselected(items=[item for item in items if "float64" in item.keywords])
    items[:] = kept


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
