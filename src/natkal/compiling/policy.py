"""How natkal's programs are compiled: the one place that decides it, and why.

Three policies, all of them `jax.jit` underneath:

- `jit_method`: a method of a learner. A call with concrete arrays is compiled once for the object; a call inside
  another transformation is plain JAX, part of that program.
- `compile_loop`: a loop over many small steps, such as `nk.run` and tables. On CPUs XLA runs a program as a
  list of kernels, fifty to a hundred nanoseconds apart. One step of a small model is two or three dozen of them and
  takes ten times as long as its arithmetic. A call with the attribute `xla_cpu_small_call` becomes one machine function
  instead, loops and all, on one thread; matrix products must then be ordinary code (`PLAIN_PRODUCTS`), because those of
  a library are kernels of their own. It is used where the state is small, on one CPU, outside of other transformations,
  and where every operation of the program is on the list `SAFE`: operations that were compiled this way and tested. An
  unknown operation means the ordinary compilation, because XLA ends the process on some that it cannot compile.
- `run_once` and `compile_quickly`: a program that runs once or a few times, compiled without optimisation.

`small_programs(False)` turns the special options off for the whole process; results then agree to rounding.
"""

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.core import trace_state_clean
from jax.core import Tracer
from jax.experimental.xla_metadata import set_xla_metadata

LARGEST_STATE_BYTES = 1 << 20
"""State up to which one thread with no kernels in between is the quickest: what the first cache levels hold."""
ONE_FUNCTION = {"xla_cpu_small_call": "true", "inlineable": "false"}
PLAIN_PRODUCTS = {"xla_cpu_experimental_ynn_fusion_type": "", "xla_backend_optimization_level": 1}
"""Products as ordinary code. Higher levels of optimisation compile for a third longer and run no faster."""
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_disable_hlo_passes": "constant_folding",
}
"""Compiler settings that make slower code of the same arithmetic, in a quarter of the time. Constants are not folded:
with large arrays among them that alone can take minutes.
"""
LIGHT = {"xla_backend_optimization_level": 1, "xla_llvm_disable_expensive_passes": True}
"""For programs of many small operations that are run some hundred times, such as paths of a forecast: compiled in four
fifths of the time, and quicker to run than with all optimisations.
"""
_SAFE_NAMES = """
abs acos acosh add add_any and argmax argmin asin asinh atan atan2 atanh bitcast_convert_type broadcast_in_dim cbrt
ceil clamp clz concatenate cond convert_element_type copy copy_p cos cosh cumlogsumexp cummax cummin cumprod cumsum
custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr digamma div dot_general dynamic_slice dynamic_update_slice eq
erf erf_inv erfc exp exp2 expand_dims expm1 floor gather ge gt imag integer_pow iota is_finite jit le lgamma log
log1p logistic lt max min mul ne neg nextafter not or pad pjit platform_index population_count pow random_bits
random_fold_in random_seed random_split random_unwrap random_wrap real reduce_and reduce_max reduce_min reduce_or
reduce_precision reduce_prod reduce_sum rem reshape rev round rsqrt scan scatter scatter-add scatter_add
select_and_gather_add select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh slice split sqrt
square squeeze stack stop_gradient sub tan tanh threefry2x32 transpose unstack while xor
"""
SAFE = frozenset(_SAFE_NAMES.split())
"""Operations known to compile as part of one machine function."""

MANY_ROWS = "nk.predict_many(learner, state, rows) and nk.run(learner, state, rows, targets) take many"

_enabled = True
Result = TypeVar("Result")


def small_programs(enabled: bool) -> None:
    """Whether loops over small states may be compiled as one machine function; off means plain `jax.jit` everywhere."""
    global _enabled
    _enabled = enabled


def jit_method(method: Callable[..., Result]) -> Callable[..., Result]:
    """A method of an immutable object, compiled once for the object; plain JAX where an argument is being traced."""
    name = f"_compiled_{method.__name__}"

    @functools.wraps(method)
    def call(self: Any, *arguments: Any) -> Any:
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arguments)):
            return method(self, *arguments)
        compiled = self.__dict__.get(name)
        if compiled is None:
            compiled = self.__dict__[name] = jax.jit(functools.partial(method, self))
        try:
            return compiled(*arguments)
        except (TypeError, ValueError) as error:
            if method.__name__ in ("predict", "step") and "nk.predict_many" not in str(error):
                shapes = [np.shape(leaf) for leaf in jax.tree.leaves(arguments[1:])]
                error.add_note(f"{method.__name__} takes one row, and got arrays of shapes {shapes}; {MANY_ROWS}")
            raise

    return call


class CompiledLoop:
    """`jax.jit(function)`, as one machine function where its first argument, the state, is small and on a CPU.

    `function` is traced once for arguments of the same shapes, whichever way it is then compiled.
    """

    def __init__(self, function: Callable[..., Any], donate_argnums: tuple[int, ...], largest: int) -> None:
        self._largest = largest
        self._traced = jax.jit(function)
        inner = jax.jit(lambda *arguments: (self._traced(*arguments), _touched(arguments)))

        def whole(*arguments: Any) -> Any:
            return jax.tree.map(_as_one_function, inner(*arguments))

        self._plain = jax.jit(self._traced, donate_argnums=donate_argnums) if donate_argnums else self._traced
        self._whole = jax.jit(whole, donate_argnums=donate_argnums, compiler_options=PLAIN_PRODUCTS)
        self._safe: dict[Any, bool] = {}
        self._last = False

    def __call__(self, *arguments: Any) -> Any:
        """The value of `function`."""
        if inside_transformation(*arguments):
            return self._traced(*arguments)
        self._last = self._is_whole(arguments)
        if not self._last:
            return self._plain(*arguments)
        try:
            return self._whole(*arguments)[0]
        except jax.errors.JaxRuntimeError as error:
            if not any(said in str(error) for said in ("compile option", "UNIMPLEMENTED")):
                raise  # not the compiler, which has no such option, or cannot compile one of the operations like this
            self._last = self._safe[_kind(arguments)] = False
            return self._plain(*arguments)

    @property
    def is_one_function(self) -> bool:
        """Whether the last call ran as one machine function."""
        return self._last

    @property
    def traced(self) -> Callable[..., Any]:
        """The function, to be traced as part of another."""
        return self._traced

    def program(self, *arguments: Any) -> Callable[..., Any]:
        """The function that serves arguments like these, without the choice that `__call__` makes each time."""
        self(*arguments)
        return (lambda *arguments: self._whole(*arguments)[0]) if self._last else self._plain

    def _is_whole(self, arguments: tuple[Any, ...]) -> bool:
        """Whether arguments like these are served by one machine function."""
        if not _enabled:
            return False
        kind = _kind(arguments)
        if kind not in self._safe:
            self._safe[kind] = _is_small(arguments[0], self._largest) and SAFE.issuperset(
                primitives(self._traced.trace(*arguments).jaxpr.jaxpr)
            )
        return self._safe[kind]


def compile_loop(
    function: Callable[..., Any], *, donate_argnums: tuple[int, ...] = (), largest: int = LARGEST_STATE_BYTES
) -> CompiledLoop:
    """`jax.jit` for a loop of many small steps on the state that is the first argument.

    `largest`: bytes of a state up to which the loop becomes one machine function.
    """
    return CompiledLoop(function, donate_argnums, largest)


def run_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)`, compiled as one program without optimisation, which takes longer than running it."""
    return compile_quickly(function)(*arguments)


def compile_quickly(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.jit(function)`, compiled without optimisation."""
    return jax.jit(function, compiler_options=QUICK)


def run_together(jobs: Sequence[Callable[[], Any]]) -> None:
    """Run these at the same time, one on each core: programs that are compiled when they are first called."""
    x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]

    def run(job: Callable[[], Any]) -> Any:
        with jax.enable_x64(x64):
            return job()

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for done in [pool.submit(run, job) for job in jobs]:
            done.result()


def blank(tree: Any) -> Any:
    """Arrays of zeros like these, which may be abstract."""

    def zeros(leaf: Any) -> Any:
        if _is_key(leaf):
            data = jax.eval_shape(jax.random.key_data, leaf)
            return jax.random.wrap_key_data(jnp.asarray(np.zeros(data.shape, data.dtype)))
        return np.zeros(jnp.shape(leaf), jnp.result_type(leaf))

    return jax.tree.map(zeros, tree)


def inside_transformation(*values: Any) -> bool:
    """Whether some of this is being traced, or the caller is, by `jit`, `grad`, `vmap` or another transformation."""
    return not trace_state_clean() or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def primitives(jaxpr: Any) -> Iterator[str]:
    """The names of all operations of a program, also of those inside others."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in jax.tree.leaves(tuple(equation.params.values())):
            if hasattr(value, "jaxpr"):
                yield from primitives(value.jaxpr)
            elif hasattr(value, "eqns"):
                yield from primitives(value)


def _kind(arguments: tuple[Any, ...]) -> Any:
    """Structure, shapes, dtypes and places: the same for arguments that one program serves. Computed at each call."""
    leaves, structure = jax.tree.flatten(arguments)
    shapes = tuple([(np.shape(leaf), getattr(leaf, "dtype", None) or type(leaf)) for leaf in leaves])
    return structure, shapes, frozenset([leaf.sharding for leaf in leaves if isinstance(leaf, jax.Array)])


def _is_small(state: Any, largest: int) -> bool:
    """Whether these arrays are few bytes in the memory of one CPU."""
    leaves = jax.tree.leaves(state)
    places = {device for leaf in leaves if isinstance(leaf, jax.Array) for device in leaf.devices()}
    if len(places) > 1 or any(place.platform != "cpu" for place in places or jax.devices()[:1]):
        return False
    return sum(getattr(leaf, "nbytes", 0) for leaf in leaves) <= largest


def _touched(arguments: Any) -> Any:
    """A number made of every argument: XLA aborts on unused arguments of such a call, so all are used."""
    total = jnp.zeros((), jnp.float32)
    for leaf in jax.tree.leaves(arguments):
        numbers = jax.random.key_data(leaf) if _is_key(leaf) else jnp.asarray(leaf)
        if numbers.size:
            total += jnp.real(numbers[(0,) * numbers.ndim]).astype(jnp.float32)
    return total


def _as_one_function(value: Any) -> Any:
    """The call that made this value, marked; random keys are not numbers and cannot carry the mark."""
    return value if _is_key(value) else set_xla_metadata(value, **ONE_FUNCTION)


def _is_key(value: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(value), jax.dtypes.prng_key)
