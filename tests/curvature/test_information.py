"""The information form: digits on ill-conditioned problems, a start from nothing, and what fades away."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.compiling.policy import SAFE, primitives
from natkal.curvature import Prior, Response
from natkal.curvature.information import UNKNOWN

pytestmark = pytest.mark.float64


def exact_least_squares(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The normal equations in rational arithmetic."""
    size = inputs.shape[1]
    table = [[Fraction(float(value)) for value in row] for row in np.column_stack([inputs, targets])]
    system = [[sum(row[i] * row[j] for row in table) for j in range(size + 1)] for i in range(size)]
    for pivot in range(size):
        top = [value / system[pivot][pivot] for value in system[pivot]]
        system = [
            top if index == pivot else [value - row[pivot] * above for value, above in zip(row, top, strict=True)]
            for index, row in enumerate(system)
        ]
    return np.array([float(row[-1]) for row in system])


def digits(estimate: np.ndarray, exact: np.ndarray) -> float:
    return -np.log10(np.linalg.norm(estimate - exact) / np.linalg.norm(exact) + 1e-17)


@pytest.mark.parametrize("degree", [5, 7, 10, *(pytest.param(degree, marks=pytest.mark.slow) for degree in (6, 8, 9))])
def test_polynomial_fits_keep_the_digits_of_householder_qr(degree: int) -> None:
    """Columns scaled to one, no prior, one pass of the online filter; condition numbers from 1e1 to 1e11."""
    rng = np.random.default_rng(degree)
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(degree + 1), nk.families.Gaussian(1.0))
    learner = nk.online(model, prior_cov=None, curvature=nk.information())
    lost = []
    for low, high in ((0, 1), (-1, 1), (1, 2)):
        for in_order in (False, True):
            x = rng.uniform(low, high, 40)
            powers = np.vander(np.sort(x) if in_order else x, degree + 1, increasing=True)
            inputs = powers / np.abs(powers).max(axis=0)
            targets = inputs @ rng.normal(size=degree + 1) + 0.1 * rng.normal(size=len(x))
            state, _ = nk.run(learner, learner.init(jnp.zeros(degree + 1)), inputs, targets)
            exact = exact_least_squares(inputs, targets)
            householder = np.linalg.lstsq(inputs, targets)[0]
            lost.append(digits(householder, exact) - digits(np.asarray(state.params), exact))
    assert np.median(lost) < 1  # of six fits NumPy's may be exact to rounding by luck, which depends on the processor


def learn(curvature, state, rows, factors, pushes, keep):
    """Updates in order; after each the covariance of all rows and of the parameters, and the displacement so far."""

    def one(now, seen):
        state, moved = now
        update = curvature.update(state, seen[0], lambda gram: Response(seen[1], seen[2]), keep)
        moved = moved + update.step
        of_rows = curvature.quadratic(update.state, jnp.asarray(rows[:12, 0]))
        return (update.state, moved), (of_rows, curvature.to_dense(update.state), moved)

    return jax.jit(lambda state: jax.lax.scan(one, (state, jnp.zeros(rows.shape[2])), (rows, factors, pushes)))(state)


def test_steps_from_nothing_are_the_shortest_ones() -> None:
    """Until every direction was seen, steps and variances of what was seen are those of the pseudo-inverse."""
    rng = np.random.default_rng(0)
    size, count = 6, 8
    rows = rng.normal(size=(count, 1, size))
    rows[2], rows[4] = 2 * rows[1], rows[0] - rows[1]
    rows[:5, :, 3] = 0.0
    pushes = rng.normal(size=(count, 1))
    curvature = nk.information()
    state = curvature.init(Prior(cov=None, kept=None, layout=(("w", (size,)),)))
    _, (of_rows, covs, moved) = learn(curvature, state, rows, np.ones((count, 1, 1)), pushes, 0.9)
    precision, expected = np.zeros((size, size)), np.zeros(size)
    for step in range(count):
        precision = 0.9 * precision + rows[step].T @ rows[step]
        inverse = np.linalg.pinv(precision, rcond=1e-10, hermitian=True)
        expected = expected + inverse @ rows[step, 0] * pushes[step, 0]
        np.testing.assert_allclose(moved[step], expected, rtol=1e-9, atol=1e-9)
        known = rows[: step + 1, 0]
        seen = of_rows[step][: step + 1, : step + 1]
        np.testing.assert_allclose(seen, known @ inverse @ known.T, rtol=1e-8, atol=1e-8)
        unseen = np.eye(size) - precision @ inverse
        np.testing.assert_allclose(covs[step], UNKNOWN * unseen, rtol=1e-9, atol=UNKNOWN * 1e-8)


def test_what_is_never_observed_fades_to_unknown_and_no_further() -> None:
    """The weight of an input that is always 0: half its precision a step, which would underflow after 1,074 of them."""
    rng = np.random.default_rng(1)
    curvature, count = nk.information(), 1600
    state = curvature.init(Prior(cov=jnp.ones(3), kept=None, layout=(("w", (3,)),)))
    rows = rng.normal(size=(count, 1, 3)) * [1.0, 0.0, 1.0]
    results = learn(curvature, state, rows, np.ones((count, 1, 1)), rng.normal(size=(count, 1)), 0.5)[1]
    assert all(np.isfinite(result).all() for result in results)
    _, covs, moved = results
    assert covs.max() <= 2 * UNKNOWN
    assert (covs[-1, 1, 1], moved[-1, 1]) == (UNKNOWN, 0.0)


def test_a_step_calls_no_library() -> None:
    curvature = nk.information()
    state = curvature.init(Prior(cov=jnp.ones(4), kept=jnp.ones(4), layout=(("w", (4,)),)))
    response = Response(jnp.ones((2, 2)), jnp.ones(2))
    half = jnp.asarray(0.5)
    step = jax.make_jaxpr(lambda s: curvature.update(s, jnp.ones((2, 4)), lambda g: response, half, half, jnp.ones(4)))
    assert SAFE.issuperset(primitives(step(state).jaxpr))
