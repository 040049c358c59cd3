"""The compile policy: a small loop is one machine function, the same bits; anything unknown is compiled plainly."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.compiling.policy import LARGEST_STATE_BYTES, compile_loop, jit_method, small_programs
from natkal.stream.run import _compiled

STATE, STEPS = jnp.arange(3.0), jnp.ones((50, 3)) / 7
ROWS = np.random.default_rng(0).normal(size=(20, 3))
LABELS = (ROWS[:, 0] > 0).astype(int)


def walk(state, steps):
    return jax.lax.scan(lambda x, row: (0.5 * x + row, jnp.sum(x * row)), state, steps)


@pytest.fixture
def plain_programs():
    small_programs(False)
    yield
    small_programs(True)


def test_one_machine_function_agrees_with_jit_to_rounding():
    function = compile_loop(walk)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-14, atol=1e-15)
    jax.tree.map(close, function(STATE, STEPS), jax.jit(walk)(STATE, STEPS))
    assert function.is_one_function
    assert 'xla_cpu_small_call="true"' in str(function._whole.lower(STATE, STEPS).compile().as_text())


def test_the_switch_turns_it_off(plain_programs):
    function = compile_loop(walk)
    jax.tree.map(np.testing.assert_array_equal, function(STATE, STEPS), jax.jit(walk)(STATE, STEPS))
    assert not function.is_one_function
    function.program(STATE, STEPS)
    small_programs(True)
    function(STATE, STEPS)
    assert function.is_one_function


@pytest.mark.parametrize(
    "unknown",
    [
        jnp.linalg.cholesky,
        jnp.linalg.inv,
        lambda x: jnp.sort(x, axis=0),
        lambda x: jnp.linalg.solve(x, x[0]),
        lambda x: jnp.real(jnp.fft.fft(x)),
        lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
        lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (2, 2), (1, 1), "VALID"),
    ],
    ids=["cholesky", "inv", "sort", "solve", "fft", "callback", "window"],
)
def test_an_operation_that_is_not_on_the_list_is_compiled_plainly(unknown):
    inside = lambda state: unknown(state @ state.T + jnp.eye(3))  # noqa: E731
    function = compile_loop(lambda state: jax.lax.cond(state[0, 0] < 1, inside, inside, state))
    state = jnp.arange(9.0).reshape(3, 3)
    np.testing.assert_allclose(function(state), inside(state), rtol=1e-5)
    assert not function.is_one_function


def test_safety_is_decided_for_each_kind_of_arguments():
    """The second program of a loop may hold an operation that the first one did not."""
    function = compile_loop(lambda state, flag: state if flag is None else jnp.sort(state))
    function(STATE, None)
    assert function.is_one_function
    np.testing.assert_array_equal(function(STATE[::-1], jnp.ones(())), STATE)
    assert not function.is_one_function


def test_inside_another_program_it_is_part_of_that_program():
    function = compile_loop(lambda state: 2 * state)
    assert float(jax.jit(function)(jnp.ones(()))) == 2.0
    assert float(jax.jit(lambda x: x + function(jnp.ones(())))(jnp.ones(()))) == 3.0  # nothing of it is traced
    np.testing.assert_array_equal(jax.vmap(function)(jnp.ones(3)), 2 * jnp.ones(3))


def test_a_large_state_is_compiled_plainly():
    function = compile_loop(lambda state: state["a"][0])
    function({"a": jnp.zeros(3), "key": jax.random.key(0)})
    assert function.is_one_function
    function({"a": jnp.zeros(LARGEST_STATE_BYTES + 1, jnp.int8), "key": jax.random.key(0)})
    assert not function.is_one_function


def test_a_donated_state_is_given_up():
    function = compile_loop(lambda state: state + 1, donate_argnums=(0,))
    for state in (jnp.zeros(3), jnp.zeros(LARGEST_STATE_BYTES)):
        function(state)
        assert state.is_deleted()


def test_arguments_that_turn_out_to_be_unused():
    def function(a, b, count):
        return jax.lax.fori_loop(0, count, lambda i, x: [jnp.where(b[0] > 0, x, a), x + a[i]][1], a)

    np.testing.assert_array_equal(compile_loop(function)(jnp.arange(3.0), jnp.ones(3), 3), [3.0, 4.0, 5.0])


def test_a_method_is_compiled_once_for_its_object_and_traced_once_inside_others():
    traces = []

    class Doubler:
        @jit_method
        def twice(self, x):
            traces.append(0)
            return 2 * x

    doubler = Doubler()
    assert [float(doubler.twice(jnp.ones(()))) for _ in range(3)] == [2.0] * 3
    assert len(traces) == 1
    assert float(jax.grad(doubler.twice)(1.0)) == 2.0


def logistic():
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(3), nk.families.Bernoulli())
    return nk.online(model, prior_cov=1.0, rates=nk.fading(0.01)), LABELS


def network():
    params = nk.mlp_params(jax.random.key(0), (3, 4, 1))
    return nk.online(nk.static_model(nk.mlp_apply, params, nk.families.Bernoulli()), prior_cov=0.3), LABELS


def classes():
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros((3, 3)), nk.families.Categorical(3))
    return nk.online(model), LABELS


def gaussian_auto():
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(3), nk.families.Gaussian(1.0))
    return nk.auto(model, members=2), ROWS @ np.array([1.0, -2.0, 0.5])


@pytest.mark.parametrize("make", [logistic, network, classes, gaussian_auto], ids=lambda make: make.__name__)
def test_small_learners_run_as_one_function_and_agree_with_plain_programs(make, rtol):
    learner, targets = make()
    state, info = nk.run(learner, learner.init(), ROWS, targets, keep="log_prob")
    loop = _compiled(learner, "log_prob")
    assert loop.is_one_function
    nk.run(learner, state, ROWS[:1], targets[:1], keep="log_prob")  # one row at a time, as river calls it
    assert loop.is_one_function
    small_programs(False)
    try:
        _, plain = nk.run(learner, learner.init(), ROWS, targets, keep="log_prob")
        assert not loop.is_one_function
    finally:
        small_programs(True)
    np.testing.assert_allclose(info.log_prob, plain.log_prob, rtol=1e4 * rtol, atol=1e4 * rtol)


@pytest.mark.parametrize(
    "layer",
    [jnp.sort, lambda u: jnp.linalg.solve(jnp.outer(u, u) + jnp.eye(3), u), lambda u: jnp.real(jnp.fft.fft(u))],
    ids=["sort", "solve", "fft"],
)
def test_a_model_with_an_unknown_operation_runs_plainly(layer):
    model = nk.static_model(lambda w, u: w @ layer(u), jnp.zeros(3), nk.families.Bernoulli())
    learner = nk.online(model)
    _, info = nk.run(learner, learner.init(), ROWS, LABELS)
    assert np.isfinite(info.log_prob).all()
    assert not _compiled(learner, "all").is_one_function
