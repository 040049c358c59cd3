"""The recurrent half of the paper: the lemmas on matrices that do not commute, and filters that must agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal.families import Bernoulli, Categorical, Gaussian
from natkal.models import cells, ravel, sensitivity
from natkal.paper import decomposition, dual_kalman, joint_kalman, rtrl, trajectory_kalman, verify
from natkal.paper.cases import build_recurrent_case
from natkal.paper.decomposition import Decomposed
from natkal.paper.state_space import StateSpace, cell_and_readout

pytestmark = pytest.mark.float64


def positive(rng: np.random.Generator, size: int) -> jax.Array:
    root = rng.normal(size=(size, size))
    return jnp.asarray(root @ root.T + 0.1 * np.eye(size))


def random_parts(rng: np.random.Generator) -> Decomposed:
    cov, state_cov = positive(rng, 5), positive(rng, 3)
    return Decomposed(cov=cov, sensitivity=jnp.asarray(rng.normal(size=(3, 5))), state_cov=state_cov)


def joint_observation(P: np.ndarray, H: np.ndarray, R: np.ndarray) -> np.ndarray:
    """The observation step of Def. 5 on the whole pair, in NumPy."""
    return P - P @ H.T @ np.linalg.solve(H @ P @ H.T + R, H @ P)


def test_lemma_14_and_its_erratum() -> None:
    """The proof's G <- (I - W R^-1) G is the joint filter; the printed (I - R^-1 W) G only if W and R commute."""
    rng = np.random.default_rng(0)
    parts, R = random_parts(rng), positive(rng, 3)
    H = np.concatenate([np.zeros((3, 5)), np.eye(3)], axis=1)
    expected = joint_observation(np.asarray(decomposition.compose(parts)), H, np.asarray(R))
    assert np.abs(parts.state_cov @ R - R @ parts.state_cov).max() > 0.1

    right = decomposition.compose(decomposition.observe_whole_state(parts, R))
    np.testing.assert_allclose(right, expected, rtol=1e-10, atol=1e-10)
    printed = decomposition.compose(decomposition.observe_whole_state_as_printed(parts, R))
    assert np.abs(np.asarray(printed) - expected).max() > 1e-2

    commuting = parts._replace(state_cov=2.5 * R)
    both = (decomposition.observe_whole_state, decomposition.observe_whole_state_as_printed)
    one, other = (decomposition.compose(observe(commuting, R)) for observe in both)
    np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def test_lemma_14_with_partial_and_direct_observation() -> None:
    rng = np.random.default_rng(1)
    parts, R = random_parts(rng), positive(rng, 2)
    by = decomposition.Derivatives(
        params=jnp.asarray(rng.normal(size=(2, 5))), state=jnp.asarray(rng.normal(size=(2, 3)))
    )
    H = np.concatenate([by.params, by.state], axis=1)
    expected = joint_observation(np.asarray(decomposition.compose(parts)), H, np.asarray(R))
    found = decomposition.compose(decomposition.observe(parts, by, R))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_cor_15_and_the_decomposition_itself() -> None:
    rng = np.random.default_rng(2)
    parts, R = random_parts(rng), positive(rng, 3)
    again = decomposition.decompose(decomposition.compose(parts), 5)
    for found, expected in zip(again, parts, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
    known = parts._replace(state_cov=jnp.zeros((3, 3)))
    observed = decomposition.observe_whole_state(known, R)
    added = decomposition.observe_without_state_cov(known.cov, known.sensitivity, R)
    np.testing.assert_allclose(added, observed.cov, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(observed.sensitivity, known.sensitivity)
    assert np.abs(observed.state_cov).max() == 0.0


DIAGONAL = {"sensitivity": sensitivity.diagonal()}


@pytest.mark.parametrize(
    ("family", "cell", "options"),
    [
        (Gaussian(0.5), cells.tanh(3), {}),
        pytest.param(Bernoulli(), cells.gru(3), {}, marks=pytest.mark.slow),
        pytest.param(Categorical(3), cells.linear(3), {}, marks=pytest.mark.slow),
        (Gaussian(0.5), cells.lru(2, memory=3.0), DIAGONAL),
        pytest.param(Bernoulli(), cells.rtu(2, memory=3.0), DIAGONAL, marks=pytest.mark.slow),
    ],
    ids=["Gaussian, tanh", "Bernoulli, GRU", "Categorical, linear", "Gaussian, LRU", "Bernoulli, RTU"],
)
def test_certificate(family, cell, options) -> None:
    """The diagonal sensitivity is the G of Thm 12: the engine with it is the joint filter."""
    case = build_recurrent_case("case", family, cell, seed=7, **options)
    rows = verify(case.model, case.inputs, case.targets, prior_cov=case.prior_cov)
    assert {"Thm 12", "Cor. 15", "theta+init", "Lemma 13", "Lemma 14", "Def. 11"} <= {row.claim for row in rows}
    assert [row for row in rows if not row.passed] == []
    assert {row.steps for row in rows} == {300}


def test_an_uncertain_start_is_forgotten() -> None:
    """W_t / W_0 falls below 1e-10 within 300 steps of a stable system: the covariance takes the form of Thm 12."""
    case = build_recurrent_case("case", Gaussian(0.5), cells.tanh(3), seed=7)
    space, params = cell_and_readout(case.model), ravel(case.model.params)
    dual = dual_kalman(space)
    start = dual.init(params, 0.1 * jnp.eye(params.size), jnp.zeros(3), 0.5 * jnp.eye(3))
    step = lambda state, row: (dual.step(state, *row), None)  # noqa: E731
    last, _ = jax.jit(lambda: jax.lax.scan(step, start, (case.inputs, case.targets)))()
    assert float(jnp.linalg.norm(last.state_cov, 2)) < 1e-10 * 0.5


def linear_space() -> tuple[StateSpace, jax.Array, jax.Array]:
    """y-hat' = 0.8 y-hat + theta . u: linear in the pair, so every filter is the exact posterior."""
    space = StateSpace(
        Phi=lambda state, params, u: 0.8 * state + jnp.sum(params * u, keepdims=True),
        h=lambda state, params, u: state,
        family=Gaussian(0.3 * np.eye(1)),
    )
    rng = np.random.default_rng(3)
    return space, jnp.asarray(rng.normal(size=(30, 2))), jnp.asarray(rng.normal(size=(30, 1)))


def follow(algorithm, start, inputs, targets):
    return jax.jit(
        lambda: jax.lax.scan(lambda state, row: (algorithm.step(state, *row), None), start, (inputs, targets))[0]
    )()


def test_trajectory_filter_that_recomputes_is_the_joint_filter_where_all_is_linear() -> None:
    space, inputs, targets = linear_space()
    joint, trajectory = joint_kalman(space, 2), trajectory_kalman(space, window=40, recompute=True)
    pair = follow(joint, joint.init(jnp.zeros(3), jnp.pad(jnp.eye(2), (0, 1))), inputs, targets)
    start = trajectory.init(jnp.zeros(2), jnp.eye(2), jnp.zeros(1), inputs[0])
    alone = follow(trajectory, start, inputs, targets)
    np.testing.assert_allclose(alone.params, pair.estimate[:2], rtol=1e-10)
    np.testing.assert_allclose(alone.cov, pair.cov[:2, :2], rtol=1e-9)


def test_truncated_back_propagation_sees_exactly_its_window() -> None:
    """At fixed theta, a window past the start gives RTRL's G; a window of k gives the last k terms of its sum."""
    space, inputs, targets = linear_space()
    learner = rtrl(space, lambda t: 0.0)
    state = follow(learner, learner.init(jnp.ones(2), jnp.zeros(1)), inputs[:8], targets[:8])
    for window in (3, 20):
        trajectory = trajectory_kalman(space, window)
        start = trajectory.init(jnp.ones(2), 1e-12 * jnp.eye(2), jnp.zeros(1), inputs[0])
        past = follow(trajectory, start, inputs[:8], targets[:8])
        found = jax.jacrev(trajectory.run_window)(jnp.ones(2), past)
        seen = [0.8**age * inputs[7 - age] for age in range(min(window, 8))]
        np.testing.assert_allclose(found[0], np.sum(seen, axis=0), rtol=1e-9)
        if window > 8:
            np.testing.assert_allclose(found, state.sensitivity, rtol=1e-9)
