"""NIST's certified values: least squares by filtering, from no prior at all, in relinearised passes."""

import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm

import natkal as nk
from tests.references.nist_models import MODELS, load

pytestmark = pytest.mark.float64

# Of the 26 sets with one predictor, 24 reach 10 digits from start 2 within 60 passes (not Gauss3 and MGH09, whose basin
# the undamped Gauss-Newton step leaves); these twelve cover every class of model at a moderate cost.
SETS = [
    "Bennett5",
    "BoxBOD",
    "DanWood",
    "Eckerle4",
    "Gauss1",
    "Kirby2",
    "Lanczos3",
    "MGH10",
    "MGH17",
    "Misra1a",
    "Rat43",
    "Roszman1",
]


def diffuse(model):
    return nk.online(model, prior_cov=None, curvature=nk.information())


@pytest.mark.parametrize("name", SETS)
def test_nonlinear_sets_to_seven_digits(name: str) -> None:
    data = load(name)
    model = nk.static_model(MODELS[name], jnp.asarray(data.start), nk.families.Gaussian(1.0))
    state = nk.refine(diffuse(model), jnp.asarray(data.start), data.inputs, data.targets, passes=30)
    np.testing.assert_allclose(state.params, data.certified, rtol=1e-7)


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
