"""A small program as one function: the same bits, and nothing is refused that `jax.jit` takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal.drivers.compact import LARGEST, compact, is_small


def walk(state, steps):
    return jax.lax.scan(lambda x, row: (0.5 * x + row, jnp.sum(x * row)), state, steps)


def test_equals_jit_bit_for_bit():
    state, steps = jnp.arange(3.0), jnp.ones((50, 3)) / 7
    jax.tree.map(np.testing.assert_array_equal, compact(walk)(state, steps), jax.jit(walk)(state, steps))


def test_small_programs_become_one_kernel():
    state, steps = jnp.arange(3.0), jnp.ones((50, 3))
    function = compact(walk)
    function(state, steps)
    assert function.whole_function
    assert 'xla_cpu_small_call="true"' in str(function._whole.lower(state, steps).compile().as_text())


@pytest.mark.parametrize("library", [jnp.linalg.cholesky, jnp.linalg.inv, lambda x: jnp.sort(x, axis=0)])
def test_a_program_that_calls_a_library_is_compiled_as_ever(library):
    function = compact(lambda state: library(state @ state.T + jnp.eye(3)))
    state = jnp.arange(9.0).reshape(3, 3)
    np.testing.assert_array_equal(function(state), jax.jit(lambda x: library(x @ x.T + jnp.eye(3)))(state))
    assert not function.whole_function


def test_inside_another_program_and_in_a_batch():
    function = compact(lambda state: 2 * state)
    assert float(jax.jit(function)(jnp.ones(()))) == 2.0
    np.testing.assert_array_equal(jax.vmap(function)(jnp.ones(3)), 2 * jnp.ones(3))


def test_small_means_few_bytes():
    assert is_small({"a": jnp.zeros(3), "key": jax.random.key(0)})
    assert not is_small(jnp.zeros(LARGEST + 1, jnp.int8))


def test_donated_state_is_given_up():
    function = compact(lambda state: state + 1, donate_argnums=(0,))
    state = jnp.zeros(3)
    function(state)
    assert state.is_deleted()


def test_arguments_that_turn_out_to_be_unused():
    def function(a, b, count):
        return jax.lax.fori_loop(0, count, lambda i, x: [jnp.where(b[0] > 0, x, a), x + a[i]][1], a)

    np.testing.assert_array_equal(compact(function)(jnp.arange(3.0), jnp.ones(3), 3), [3.0, 4.0, 5.0])
