"""G against back-propagation through time at fixed theta: exact, unbiased, or biased, as each is published."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import natkal as nk
from natkal.models.recurrent.model import _cap
from tests.conftest import FLOAT64
from tests.models.recurrent.registry import ALL, DIAGONAL, SENSITIVITIES, UNITS, cell

STEPS, INPUTS, DRAWS, LEVEL = 6, 2, 2000, 1e-3
KINDS = {kind: [entry for entry in SENSITIVITIES if entry.kind == kind] for kind in ("exact", "biased", "unbiased")}
BY_CELL = [pytest.param(name, id=name) for name in ALL]
ALIKE = {"diagonal", "leaky", "linear", "lstm"}
"""Cells whose claims a quicker one of the same kind checks too."""


@functools.cache
def network(name: str):
    with jax.ensure_compile_time_eval():
        model = nk.recurrent_network(jax.random.key(3), cell(name), INPUTS, nk.families.Gaussian(1.0))
        return model, jax.random.normal(jax.random.key(4), (STEPS, INPUTS))


def advance(model, sensitivity, inputs):
    """What the sensitivity carries after these inputs."""

    def step(carry, u):
        known, state = carry
        local = model.system.linearize(model.params, state, u)
        return (sensitivity.advance(model.system, known, local), local.next_state), None

    start = sensitivity.init(model.system, None), jnp.zeros(model.system.state_size)
    return jax.lax.scan(step, start, inputs)[0][0]


def sensitivity_after(name: str, sensitivity):
    """G as a matrix, and G d for one d, after STEPS steps at fixed theta."""
    model, inputs = network(name)
    system = model.system
    known = advance(model, sensitivity, inputs)
    step = jnp.linspace(-1.0, 1.0, system.size)
    return sensitivity.rows(system, known, jnp.eye(system.state_size)), sensitivity.push(system, known, step)


def through_time(name: str):
    """d s_T / d theta of the unrolled network."""
    model, inputs = network(name)

    def last(params):
        step = lambda state, u: (model.system.step(params, state, u), None)  # noqa: E731
        return jax.lax.scan(step, jnp.zeros(model.system.state_size), inputs)[0]

    by_leaf = jax.jacrev(last)(model.params)
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(by_leaf)], axis=1)


@functools.cache
def everything(name: str):
    """All deterministic sensitivities of a cell, and what they should be, in one program."""
    entries = [entry for entry in SENSITIVITIES if entry.kind != "unbiased" and name in entry.cells]
    compute = jax.jit(lambda: ({e.name: sensitivity_after(name, e.build(0)) for e in entries}, through_time(name)))
    return compute()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in ALIKE else []) for name in ALL],
)
def test_exact_ones_are_back_propagation_through_time(name, rtol) -> None:
    found, expected = everything(name)
    for entry in KINDS["exact"]:
        if name not in entry.cells:
            continue
        np.testing.assert_allclose(found[entry.name][0], expected, rtol=rtol, atol=rtol, err_msg=entry.name)


@pytest.mark.parametrize("name", BY_CELL)
def test_biased_ones_are_not(name) -> None:
    found, expected = everything(name)
    for entry in KINDS["biased"]:
        if name in entry.cells:
            assert float(jnp.max(jnp.abs(found[entry.name][0] - expected))) > 1e-3, entry.name


@pytest.mark.parametrize("name", BY_CELL)
def test_rows_and_push_are_of_one_matrix(name, rtol) -> None:
    found, expected = everything(name)
    step = np.linspace(-1.0, 1.0, expected.shape[1])
    for known, (matrix, pushed) in found.items():
        np.testing.assert_allclose(pushed, matrix @ step, rtol=rtol, atol=10 * rtol, err_msg=known)


@pytest.mark.float64
@pytest.mark.slow
@pytest.mark.parametrize("name", ["tanh", "gru", "lstm"])
def test_random_ones_are_unbiased(name) -> None:
    """No entry of the mean of many draws is further from G than chance allows, at level 0.001 for all entries."""
    expected = np.asarray(everything(name)[1])
    entries = [entry for entry in KINDS["unbiased"] if name in entry.cells]

    def moments(build):
        def draw(seed):
            matrix, pushed = sensitivity_after(name, build(seed))
            step = jnp.linspace(-1.0, 1.0, matrix.shape[1])
            return matrix, jnp.max(jnp.abs(matrix @ step - pushed))

        matrices, gaps = jax.vmap(draw)(jnp.arange(DRAWS))
        return jnp.mean(matrices, axis=0), jnp.std(matrices, axis=0), jnp.max(gaps)

    found = jax.jit(lambda: [moments(entry.build) for entry in entries])()
    bound = stats.norm.isf(LEVEL / (2 * expected.size * len(entries)))
    for entry, (mean, spread, gap) in zip(entries, found, strict=True):
        error = np.asarray(spread) / np.sqrt(DRAWS)
        moving = error > 1e-12
        z = np.abs(np.asarray(mean) - expected)[moving] / error[moving]
        assert z.max() < bound, entry.name
        np.testing.assert_allclose(np.asarray(mean)[~moving], expected[~moving], atol=1e-10, err_msg=entry.name)
        assert gap < 1e-9, entry.name


def test_snap_keeps_what_the_wiring_reaches(rtol) -> None:
    """Units in a ring: after n steps a weight has reached n units; snap(n) is exact on the states it keeps at first."""
    links = np.roll(np.eye(UNITS, dtype=bool), 1, axis=0)
    model = nk.recurrent_network(jax.random.key(0), nk.cells.tanh(UNITS, links), 1, nk.families.Gaussian(1.0))
    system = model.system

    def kept(sensitivity):
        return sensitivity.rows(system, advance(model, sensitivity, jnp.ones((2, 1))), jnp.eye(UNITS))

    snaps = [nk.sensitivity.snap(steps) for steps in (1, 2, 3)]
    exact, one, two, three = jax.jit(lambda: [kept(s) for s in (nk.sensitivity.rtrl(), *snaps)])()
    np.testing.assert_allclose(two, exact, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(three, exact, rtol=rtol, atol=rtol)
    assert np.abs(one - exact).max() > 1e-3
    assert (np.count_nonzero(one, axis=0) <= 1).all()


@pytest.mark.parametrize("name", DIAGONAL)
def test_a_trace_is_one_number_per_parameter_and_state_leaf(name) -> None:
    """Nothing is kept for the readout, which feeds no unit."""
    model, _ = network(name)
    fed = sum(np.size(leaf) for leaf in jax.tree.leaves(model.params["cell"]))
    kept = nk.sensitivity.diagonal().init(model.system, None)
    assert sum(trace.size for trace in kept) == len(jax.tree.leaves(model.state)) * fed
    assert model.sensitivity == nk.sensitivity.diagonal()
    assert nk.sensitivity.snap(1).init(model.system, None).shape == (len(jax.tree.leaves(model.state)), model.size)


def test_layerwise_drops_what_upper_layers_remember_of_lower_weights(rtol) -> None:
    """Against derivatives of the unrolled stack: with x_m,t-1 of each layer held fixed for the weights below it.

    Exact RTRL differs there, and agrees for the last layer.
    """
    layers = (nk.cells.lru(2), nk.cells.rtu(3), nk.cells.lru(2))
    stack = nk.cells.stack(*layers)
    model = nk.recurrent_network(jax.random.key(1), stack, INPUTS, nk.families.Gaussian(1.0))
    inputs = jax.random.normal(jax.random.key(2), (STEPS, INPUTS))
    assert model.sensitivity == nk.sensitivity.rtrl()

    def alone(params, at):
        """The last states, with the weights of layer and map `at` taken from `params`, all others as they are."""
        weights = dict(model.params["cell"])
        for kind in ("layers", "maps"):
            mine = params["cell"][kind]
            weights[kind] = [mine[i] if i == at else w for i, w in enumerate(model.params["cell"][kind])]
        state = stack.state()
        for u in inputs:
            past = [jax.lax.stop_gradient(s) if i > at else s for i, s in enumerate(state)]
            state = stack.advance(weights, tuple(past), u)
        return jax.flatten_util.ravel_pytree(state)[0]

    def matrices():
        jacobians = [jax.jacrev(alone)(model.params, at) for at in range(len(layers))]
        by_leaf = [sum(leaves) for leaves in zip(*map(jax.tree.leaves, jacobians), strict=True)]
        expected = jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in by_leaf], axis=1)
        found = []
        for sensitivity in (nk.sensitivity.layerwise(), nk.sensitivity.rtrl()):
            known = advance(model, sensitivity, inputs)
            step = jnp.linspace(-1.0, 1.0, model.size)
            found.append(sensitivity.rows(model.system, known, jnp.eye(model.system.state_size)))
            found.append(sensitivity.push(model.system, known, step))
        return expected, *found

    expected, rows, pushed, exact, _ = jax.jit(matrices)()
    np.testing.assert_allclose(rows, expected, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(pushed, rows @ np.linspace(-1.0, 1.0, model.size), rtol=rtol, atol=rtol)
    gap = jax.tree.map(lambda leaf: float(jnp.max(jnp.abs(leaf))), jax.vmap(model.unravel)(rows - exact)["cell"])
    assert gap["layers"][0]["real"] > 1e-3
    assert max(jax.tree.leaves(gap["layers"][-1])) < rtol
    with pytest.raises(ValueError, match=r"layerwise\(\) needs a cell of nk.cells.stack"):
        nk.sensitivity.layerwise().init(network("lru")[0].system, None)
    with pytest.raises(ValueError, match=r"diagonal\(\) is exact only where no unit reads another"):
        nk.sensitivity.diagonal().init(model.system, None)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_cap_bounds_whatever_comes(value) -> None:
    big = {"g": jnp.full((2, 3), value), "fine": jnp.ones(2), "key": jax.random.key(0)}
    capped, hit = _cap(big, 10.0)
    assert int(hit) == 1
    assert np.isfinite(capped["g"]).all()
    assert float(jnp.linalg.norm(capped["g"])) <= 10.0 * (1 + 1e-6)
    np.testing.assert_array_equal(capped["fine"], np.ones(2))


def test_divergence_is_capped_and_counted() -> None:
    """An unstable linear cell: |G| would grow by 3 a step."""
    model = nk.recurrent_model(
        lambda w, s, u: 3.0 * s + w * u, lambda w, s, u: 0 * s, jnp.zeros(1), jnp.zeros(1), nk.families.Gaussian(1.0)
    )
    learner = nk.online(model, prior_cov=1e-3)
    steps = 400 if FLOAT64 else 60
    state, info = nk.run(learner, learner.init(jnp.zeros(1)), np.ones((steps, 1)), np.zeros(steps))
    assert int(state.carry.capped) > steps - 15
    assert float(jnp.linalg.norm(state.carry.sensitivity)) <= 1e4 * (1 + 1e-6)
    assert np.isfinite(info.log_prob).all()


def test_what_a_sensitivity_cannot_do_is_said() -> None:
    cell = lambda w, s, u: jnp.tanh(w * s + u)  # noqa: E731
    build = functools.partial(
        nk.recurrent_model, cell, lambda w, s, u: s, jnp.zeros(1), jnp.zeros(1), nk.families.Gaussian(1.0)
    )
    with pytest.raises(ValueError, match="must know which unit each parameter feeds"):
        nk.online(build(sensitivity=nk.sensitivity.snap(1))).init(jnp.zeros(1))
    refusal = r"diagonal\(\) is exact only where no unit reads another; use nk.cells.lru"
    with pytest.raises(ValueError, match=refusal):
        nk.sensitivity.diagonal().init(network("gru")[0].system, None)
    with pytest.raises(ValueError, match=refusal):
        nk.online(build(sensitivity=nk.sensitivity.diagonal())).init(jnp.zeros(1))
    with pytest.raises(ValueError, match="whose weights are matrices"):
        nk.online(build(sensitivity=nk.sensitivity.kronecker_rtrl())).init(jnp.zeros(1))
    with pytest.raises(ValueError, match=r"state_cov: an uncertain state .* needs sensitivity=rtrl\(\)"):
        build(sensitivity=nk.sensitivity.uoro(), state_cov=1.0)
    with pytest.raises(ValueError, match=r"process_noise: must be a number, 1 variances or a \(1, 1\) matrix"):
        build(process_noise=np.ones(3))
    with pytest.raises(ValueError, match="steps: must be at least 1, got 0"):
        nk.sensitivity.truncated(0)
