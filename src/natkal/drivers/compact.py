"""A small program compiled as one machine function.

On CPUs XLA runs a program as a list of kernels, fifty to a hundred nanoseconds apart. One step of a small model is two
or three dozen of them, and takes ten times as long as its arithmetic. A call with the attribute `xla_cpu_small_call`
becomes one function instead, loops and all, on one thread. XLA gives that to loops over a few hundred bytes by itself;
here the limit is what the first cache levels hold.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata

from natkal.families.checks import is_concrete

LARGEST = 1 << 20
"""Bytes of state up to which one thread with no kernels in between is the quickest."""
ONE_FUNCTION = {"xla_cpu_small_call": "true", "inlineable": "false"}
PLAIN_PRODUCTS = {"xla_cpu_experimental_ynn_fusion_type": ""}
"""Products of matrices as ordinary code: those of a library are kernels of their own."""
LIBRARY = {"cholesky", "eig", "eigh", "ffi_call", "fft", "householder_product", "lu", "qr", "schur", "sort", "svd"}
LIBRARY |= {"triangular_solve", "pure_callback", "io_callback", "debug_callback"}
"""What is a call of other code, which cannot be part of the function."""


class Compact:
    """`jax.jit(function)`, as one machine function where its first argument is small and on a CPU."""

    def __init__(self, function: Callable[..., Any], donate_argnums: tuple[int, ...]) -> None:
        inner = jax.jit(lambda *arguments: (function(*arguments), _touched(arguments)))

        def whole(*arguments: Any) -> Any:
            return jax.tree.map(_as_one_function, inner(*arguments))

        self._plain = jax.jit(function, donate_argnums=donate_argnums)
        self._whole = jax.jit(whole, donate_argnums=donate_argnums, compiler_options=PLAIN_PRODUCTS)
        self.whole_function: bool | None = None

    def __call__(self, *arguments: Any) -> Any:
        """What `function` gives."""
        if self.whole_function is False or not is_small(arguments[0]):
            return self._plain(*arguments)
        if self.whole_function is None:
            self.whole_function = LIBRARY.isdisjoint(primitives(self._whole.trace(*arguments).jaxpr.jaxpr))
            return self(*arguments)
        try:
            return self._whole(*arguments)[0]
        except jax.errors.JaxRuntimeError:  # this version of the compiler knows no such option, or no such function
            self.whole_function = False
            return self._plain(*arguments)

    def program(self, *arguments: Any) -> Callable[..., Any]:
        """What serves arguments like these, for callers to whom looking at them each time would be too slow."""
        self(*arguments)
        return (lambda *arguments: self._whole(*arguments)[0]) if self.whole_function else self._plain


def compact(function: Callable[..., Any], *, donate_argnums: tuple[int, ...] = ()) -> Compact:
    """`jax.jit`, except that a function of a small state is compiled without the pauses between its parts."""
    return Compact(function, donate_argnums)


def is_small(state: Any) -> bool:
    """Whether these arrays are few bytes in the memory of one CPU; values being traced belong to another program."""
    leaves = jax.tree.leaves(state)
    if not all(is_concrete(leaf) for leaf in leaves):
        return False
    places = {device for leaf in leaves if isinstance(leaf, jax.Array) for device in leaf.devices()}
    if len(places) > 1 or any(place.platform != "cpu" for place in places or jax.devices()[:1]):
        return False
    return sum(getattr(leaf, "nbytes", 0) for leaf in leaves) <= LARGEST


def primitives(jaxpr: Any) -> Iterator[str]:
    """The names of all operations, also of those inside others."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in jax.tree.leaves(tuple(equation.params.values())):
            if hasattr(value, "jaxpr"):
                yield from primitives(value.jaxpr)
            elif hasattr(value, "eqns"):
                yield from primitives(value)


def _touched(arguments: Any) -> Any:
    """A number made of every argument: the compiler ends the process where one that it finds unused is passed on."""
    total = jnp.zeros((), jnp.float32)
    for leaf in jax.tree.leaves(arguments):
        numbers = jax.random.key_data(leaf) if _is_key(leaf) else jnp.asarray(leaf)
        if numbers.size:
            total += jnp.real(numbers[(0,) * numbers.ndim]).astype(jnp.float32)
    return total


def _as_one_function(value: Any) -> Any:
    """The call that made this value, marked; keys of random streams are not numbers, and cannot carry the mark."""
    return value if _is_key(value) else set_xla_metadata(value, **ONE_FUNCTION)


def _is_key(value: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(value), jax.dtypes.prng_key)
