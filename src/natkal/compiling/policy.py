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
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.config import trace_context
from jax._src.core import trace_state_clean
from jax.core import Tracer
from jax.experimental.xla_metadata import set_xla_metadata

from natkal.compiling import programs
from natkal.compiling.programs import Program, compile_ahead

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
WITHIN = SAFE | {"igamma", "igammac", "le_to", "lt_to", "regularized_incomplete_beta", "sort", "top_k"}
"""Operations that call no code outside of the program: it can be kept."""

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


class Compiled:
    """`jax.jit(function)`, with a program of its own for each kind of arguments.

    With a `name`, words and numbers that say what the function is, programs are shared by all functions of this name
    and kept on disk (`programs.py`). `function` is traced once for arguments of the same shapes, whichever way it is
    then compiled.
    """

    def __init__(self, function: Callable[..., Any], name: Any, donate: tuple[int, ...], options: Any) -> None:
        self._name = name
        self._donate = donate
        self._options = options
        self._traced = jax.jit(function)
        plain = not (donate or options)
        self._plain = self._traced if plain else jax.jit(self._traced, donate_argnums=donate, compiler_options=options)
        self._programs: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        """The value of `function`."""
        if inside_transformation(*arguments):
            return self._traced(*arguments)
        return self.program(*arguments)(*arguments)

    @property
    def traced(self) -> Callable[..., Any]:
        """The function, to be traced as part of another."""
        return self._traced

    def program(self, *arguments: Any) -> Callable[..., Any]:
        """The program for arguments like these, which may be abstract: kept, or compiled now or at its first call."""
        kind = _kind(arguments)
        found = self._programs.get(kind)
        if found is None:
            named = None
            if self._name is not None:
                named = programs.program(self._full_name, arguments, lambda: self._make(arguments))
            found = self._programs[kind] = named or self._jitted(arguments)
        return found

    def prepare(self, *arguments: Any) -> None:
        """Have the program for arguments like these, which may be abstract; one without a name by running it."""
        if not isinstance(self.program(*arguments), Program):
            self(*blank(arguments))

    def shapes(self, *arguments: Any) -> Any:
        """The value for arguments like these without its numbers, from a program that is there or by tracing."""
        kind = _kind(arguments)
        found = self._programs.get(kind)
        if found is None and self._name is not None:
            found = programs.kept_program(self._full_name, arguments)
            if found is not None:
                self._programs[kind] = found
        return found.shapes if isinstance(found, Program) else jax.eval_shape(self._traced, *arguments)

    @property
    def _full_name(self) -> tuple[Any, ...]:
        return self._name, self._donate, json.dumps(self._options, sort_keys=True)

    def _make(self, arguments: tuple[Any, ...]) -> tuple[Program, bool]:
        """The program, and whether it may be kept."""
        within = WITHIN.issuperset(self._primitives(arguments))
        return compile_ahead(self._traced, arguments, donate=self._donate, options=self._options), within

    def _jitted(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        return self._plain

    def _primitives(self, arguments: tuple[Any, ...]) -> Iterator[str]:
        return primitives(self._traced.trace(*arguments).jaxpr.jaxpr)


class CompiledLoop(Compiled):
    """A loop of many small steps: one machine function where its first argument, the state, is small and on a CPU."""

    def __init__(self, function: Callable[..., Any], name: Any, donate: tuple[int, ...], largest: int) -> None:
        super().__init__(function, name, donate, None)
        self._largest = largest
        inner = jax.jit(lambda *arguments: (self._traced(*arguments), _touched(arguments)))

        def whole(*arguments: Any) -> Any:
            return jax.tree.map(_as_one_function, inner(*arguments))

        self._marked = whole
        self._whole = jax.jit(whole, donate_argnums=donate, compiler_options=PLAIN_PRODUCTS)
        self._last = False

    @property
    def is_one_function(self) -> bool:
        """Whether the last call ran as one machine function."""
        return self._last

    def program(self, *arguments: Any) -> Callable[..., Any]:
        """The function that serves arguments like these, without the choice that `__call__` makes each time."""
        found = super().program(*arguments)
        self._last = found.one_function if isinstance(found, Program) else found != self._plain
        return found

    @property
    def _full_name(self) -> tuple[Any, ...]:
        return self._name, self._donate, self._largest, _enabled

    def _make(self, arguments: tuple[Any, ...]) -> tuple[Program, bool]:
        if self._is_whole(arguments):
            try:
                made = compile_ahead(
                    self._marked, arguments, donate=self._donate, options=PLAIN_PRODUCTS, one_function=True
                )
            except jax.errors.JaxRuntimeError as error:
                _check_compiler(error)
            else:
                return made, True
        return super()._make(arguments)

    def _jitted(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        if not self._is_whole(arguments):
            return self._plain
        kind = _kind(arguments)

        def call(*arguments: Any) -> Any:
            try:
                return self._whole(*arguments)[0]
            except jax.errors.JaxRuntimeError as error:
                _check_compiler(error)
                self._programs[kind], self._last = self._plain, False
                return self._plain(*arguments)

        return call

    def _is_whole(self, arguments: tuple[Any, ...]) -> bool:
        """Whether arguments like these are served by one machine function."""
        return _enabled and _is_small(arguments[0], self._largest) and SAFE.issuperset(self._primitives(arguments))


def compile_loop(
    function: Callable[..., Any],
    *,
    donate_argnums: tuple[int, ...] = (),
    largest: int = LARGEST_STATE_BYTES,
    name: Any = None,
) -> CompiledLoop:
    """`jax.jit` for a loop of many small steps on the state that is the first argument.

    `largest`: bytes of a state up to which the loop becomes one machine function. `name`: see `Compiled`.
    """
    return CompiledLoop(function, name, donate_argnums, largest)


def compile_lightly(function: Callable[..., Any], *, name: Any = None) -> Compiled:
    """`jax.jit(function)` for a program of many small operations that runs some hundred times; kept under a name."""
    return Compiled(function, name, (), LIGHT)


def compile_whole(function: Callable[..., Any], *, name: Any = None) -> Compiled:
    """`jax.jit(function)`, kept under a name."""
    return Compiled(function, name, (), None)


def run_once(function: Callable[..., Any], *arguments: Any, name: Any = None) -> Any:
    """`function(*arguments)`, compiled as one program without optimisation, which takes longer than running it."""
    return compile_quickly(function, name=name)(*arguments)


def compile_quickly(function: Callable[..., Any], *, name: Any = None) -> Compiled:
    """`jax.jit(function)`, compiled without optimisation; kept under a name."""
    return Compiled(function, name, (), QUICK)


def run_together(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """What these give, run at the same time, one on each core: programs compiled when they are first called."""
    x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]

    def run(job: Callable[[], Any]) -> Any:
        with jax.enable_x64(x64):
            return job()

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return [done.result() for done in [pool.submit(run, job) for job in jobs]]


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
    places = frozenset([leaf.sharding for leaf in leaves if isinstance(leaf, jax.Array)])
    return structure, shapes, places, trace_context(), _enabled


def _is_small(state: Any, largest: int) -> bool:
    """Whether these arrays are few bytes in the memory of one CPU."""
    leaves = jax.tree.leaves(state)
    places = {device for leaf in leaves if isinstance(leaf, jax.Array) for device in leaf.devices()}
    if len(places) > 1 or any(place.platform != "cpu" for place in places or jax.devices()[:1]):
        return False
    return sum(np.size(leaf) * getattr(getattr(leaf, "dtype", None), "itemsize", 8) for leaf in leaves) <= largest


def _check_compiler(error: Exception) -> None:
    """Raise again what is not the compiler, which has no such option or cannot compile an operation like this."""
    if not any(said in str(error) for said in ("compile option", "UNIMPLEMENTED")):
        raise error


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
