"""NIST's certified values: least squares by filtering, from no prior at all, in relinearised passes."""

import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm

import natkal as nk
from tests.references.nist_models import MODELS, load

pytestmark = pytest.mark.float64

QUICK = ["Bennett5", "BoxBOD", "Gauss3", "MGH09", "MGH10", "Nelson", "Roszman1", "Thurber"]
"""One of every kind, with those that undamped Gauss-Newton steps do not reach (Gauss3, MGH09); `make soak` has all."""
SETS = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in sorted(MODELS)]


def diffuse(model):
    return nk.online(model, prior_cov=None, curvature=nk.information())


def fitted(name: str, start: np.ndarray) -> np.ndarray:
    data = load(name)
    model = nk.static_model(MODELS[name], jnp.asarray(start), nk.families.Gaussian(1.0))
    state = nk.refine(diffuse(model), jnp.asarray(start), data.inputs, data.targets, passes=60)
    return np.asarray(state.params)


@pytest.mark.parametrize("name", SETS)
def test_nonlinear_sets_to_seven_digits(name: str) -> None:
    """All 27, from NIST's second starting point."""
    data = load(name)
    np.testing.assert_allclose(fitted(name, data.start), data.certified, rtol=1e-7)


def test_a_far_start_is_reached_by_damping() -> None:
    """From NIST's first starting point of Rat43, no halving of Gauss-Newton steps ends at the certified values."""
    data = load("Rat43")
    np.testing.assert_allclose(fitted("Rat43", data.far_start), data.certified, rtol=1e-7)


# NIST StRD, "Longley", certified regression coefficients.
LONGLEY = [
    -3482258.63459582,
    15.0618722713733,
    -0.358191792925910e-01,
    -2.02022980381683,
    -1.03322686717359,
    -0.511041056535807e-01,
    1829.15146461355,
]


def test_longley_to_ten_digits_from_no_prior() -> None:
    data = sm.datasets.longley.load_pandas()
    inputs = np.column_stack([np.ones(len(data.endog)), data.exog.to_numpy(float)])
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(7), nk.families.Gaussian(1.0))
    state = nk.refine(diffuse(model), jnp.zeros(7), inputs, data.endog.to_numpy(float), passes=4)
    np.testing.assert_allclose(state.params, LONGLEY, rtol=1e-10)
