"""The certificate: it holds where the theorems do, and says no where it must."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal.families import Bernoulli, Categorical, Exponential
from natkal.models import static_model
from natkal.paper import cases, sampling, verify
from natkal.paper.claims import STATIC, result
from natkal.paper.dictionary import constant
from tests.conftest import FLOAT64

TOLERANCE = 1e-10 if FLOAT64 else 1e-2
ALWAYS = set(STATIC) - {"Appendix", "Sec. 1.1"}


def certify(family, hidden, outputs, **options):
    case = cases.build_case("case", family, hidden, outputs=outputs, seed=0, steps=60)
    return verify(
        case.model, case.inputs, case.targets, prior_cov=case.prior_cov, tolerance=TOLERANCE, name="case", **options
    )


@pytest.mark.slow
def test_every_claim_holds_for_a_network_with_k_logits():
    rows = certify(Categorical(3), (2,), 3)
    assert {row.claim for row in rows} == set(STATIC)
    assert [row for row in rows if not row.passed] == []
    assert len({row.setting for row in rows if row.claim == "Prop. 3"}) == 4
    assert {row.model for row in rows} == {"case"}
    assert all(row.steps == 60 for row in rows if row.claim != "Sec. 1.2")


@pytest.mark.slow
def test_infinite_support_and_other_rates():
    rows = certify(Exponential(), (), 1, schedules={"constant": constant(0.02)}, prior_weight=2.0)
    assert {row.claim for row in rows} == ALWAYS
    assert [row for row in rows if not row.passed] == []


def test_a_diverged_run_fails():
    row = result("Thm 2", setting="", model="m", steps=1, params=float("nan"), matrix=0.0, tolerance=1e-10)
    assert not row.passed
    row = result("Lemma 8", setting="", model="m", steps=1, params=None, matrix=2e-10, tolerance=1e-10)
    assert not row.passed


def test_the_bound_of_the_sampling_test():
    """Bonferroni over the entries: p = 1 is the two-sided normal quantile at 0.001."""
    assert sampling.bound(1) == pytest.approx(3.2905, abs=1e-3)
    assert sampling.bound(10) > sampling.bound(1)


def test_the_built_in_cases_are_every_family_linear_and_with_a_hidden_layer(monkeypatch):
    monkeypatch.setattr(cases, "build_case", lambda name, family, hidden, **_: cases.Case(name, *4 * [hidden]))
    built = {case.name: case.model for case in cases.static_cases()}
    assert len(built) == 2 * len(cases.builtin_families()) >= 16
    assert all(built[f"{name}, linear"] == () and built[f"{name}, MLP"] for name in cases.builtin_families())


# -- what it refuses -------------------------------------------------------------------------------------------------


def bernoulli(family=None):
    return static_model(lambda w, u: w @ u, jnp.zeros(2), Bernoulli() if family is None else family)


def test_impossible_targets_are_named():
    with pytest.raises(ValueError, match=r"target 3 .*row 1"):
        verify(bernoulli(), jnp.ones((2, 2)), np.array([0, 3]), tolerance=1e-2)


def test_a_tolerance_out_of_reach_is_named():
    with jax.enable_x64(False):
        model = static_model(lambda w, u: w @ u, jnp.zeros(2, jnp.float32), Bernoulli())
        with pytest.raises(ValueError, match="tolerance: 1e-10 is out of reach of float32"):
            verify(model, jnp.ones((2, 2)), np.array([0, 1]))


def test_redundant_statistics_are_refused():
    model = static_model(lambda w, u: w @ u, jnp.zeros((3, 2)), Categorical(3, minimal=False))
    with pytest.raises(ValueError, match=r"family: .*linearly dependent"):
        verify(model, jnp.ones((2, 2)), np.array([0, 1]), tolerance=1e-2)


def test_inputs_and_targets_of_different_length_are_named():
    with pytest.raises(ValueError, match=r"inputs: .*3.*targets.*2"):
        verify(bernoulli(), jnp.ones((3, 2)), np.array([0, 1]), tolerance=1e-2)


@pytest.mark.parametrize("prior_cov", [np.zeros((3, 3)), {"w": 1.0}, np.ones(5)])
def test_a_prior_that_does_not_fit_is_named(prior_cov):
    with pytest.raises(ValueError, match="prior_cov: "):
        verify(bernoulli(), jnp.ones((2, 2)), np.array([0, 1]), prior_cov=prior_cov, tolerance=1e-2)
