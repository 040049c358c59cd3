"""Rows in, one flat buffer out: everything a scikit-learn or river estimator computes, compiled once for each plan."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.app.session.runtime import in_the_calling_thread, stream_numbers
from natkal.drivers.compact import compact
from natkal.integrations.laws import NUMBER
from natkal.integrations.learners import Inputs, Plan, Start, first_params, make_learner, prior_variances
from natkal.tabular.scaling import Running, observe, standardise
from natkal.typing import Array, Float

in_the_calling_thread()

BLOCKS = (256, 1024, 4096)
"""Rows are padded to one of these lengths; longer runs are cut at the last."""
PREDICTED_TOGETHER = 64
ALIGNED = 64
STEADY = 5
"""A real target is learned from once so many have made its scale: two or three can be far off, and so can all after."""


Moments = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The fields of `Running`, as NumPy arrays."""


class Memory(NamedTuple):
    """All that an estimator knows; `learner` is the state of its filter or of its bank."""

    features: Running
    target: Running
    fading: Float[Array, ""]
    learner: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Machine:
    """The compiled functions of one plan, on flat float64 buffers; get it with `make_machine`."""

    plan: Plan

    def start(
        self, *, features: int, outputs: int, fan_in: int, prior_scale: float, fading: float, seed: int
    ) -> np.ndarray:
        """The buffer before any row, for rows of which `features` columns will be filled."""
        numbers = {"features": features, "outputs": outputs, "fan_in": fan_in}
        settings = {"prior_scale": prior_scale, "fading": fading}
        with jax.enable_x64(True):
            start = {name: np.float64(value) for name, value in {**numbers, **settings}.items()}
            return np.array(self._start({**start, "seed": seed}))

    def blank(self, count: int) -> np.ndarray:
        """Empty rows to fill, `count` of them and as many more as bring it to a length that programs have."""
        rest = count % BLOCKS[-1]
        last = next(size for size in BLOCKS if size >= rest) if rest else 0
        return _aligned(count - rest + last, self.plan.row)

    def learn(self, buffer: np.ndarray, rows: np.ndarray, count: int, *, fixed_scales: bool = False) -> np.ndarray:
        """The first `count` of these `blank` rows that were filled, in order; `fixed_scales`: none changes a scale."""
        state: Any = buffer
        with jax.enable_x64(True):
            for first in range(0, count, BLOCKS[-1]):
                part = rows[first : first + BLOCKS[-1]]
                state = self._learn_block(state, part, np.array([min(count - first, len(part)), fixed_scales]))
            return np.array(state)

    def predict(self, buffer: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
        """The law's summary for each of the first `count` of these `blank` rows, learning nothing."""
        with jax.enable_x64(True):
            pieces = [
                np.asarray(self._predict_block(buffer, rows[first : first + BLOCKS[-1]]))
                for first in range(0, count, BLOCKS[-1])
            ]
        return np.concatenate(pieces)[:count] if pieces else np.zeros((0, self.plan.law.summary_size))

    def with_scales(self, buffer: np.ndarray, features: Moments, target: Moments) -> np.ndarray:
        """The same, with the scales given."""
        given = np.concatenate([np.ravel(part) for part in (*features, *target)])
        return np.concatenate([given, buffer[len(given) :]])

    @functools.cached_property
    def learn_and_predict_row(self):
        """Buffer, a row to learn (of weight 0 if there is none) and one to predict, end to end -> buffer, summary.

        Rows come in one array because each array of a call costs microseconds.
        """

        def both(buffer: Array, rows: Array) -> tuple[Array, Array]:
            learned, row = rows.reshape(2, self.plan.row)
            memory = self._learn_row(self.unpack(buffer), learned, jnp.zeros((), bool))
            return pack(memory), self._predict_row(memory, row)

        nothing = np.zeros(sum(leaf.size for leaf in jax.tree.leaves(self.template) if not _is_key(leaf)))
        return compact(both).program(nothing, np.zeros(2 * self.plan.row))

    @functools.cached_property
    def _learn_block(self):
        def block(buffer: Array, rows: Array, how: Array) -> Array:
            count, fixed_scales = how

            def one(index: Array, memory: Memory) -> Memory:
                return self._learn_row(memory, rows[index], fixed_scales > 0)

            return pack(jax.lax.fori_loop(0, count, one, self.unpack(buffer)))

        return compact(block)

    @functools.cached_property
    def _predict_block(self):
        def block(buffer: Array, rows: Array) -> Array:
            memory = self.unpack(buffer)
            return jax.lax.map(lambda row: self._predict_row(memory, row), rows, batch_size=PREDICTED_TOGETHER)

        return jax.jit(block)

    @functools.cached_property
    def _start(self):
        return jax.jit(lambda start: pack(self.fresh(Start(**start))))

    def fresh(self, start: Start) -> Memory:
        """What is known before any row."""
        learner = make_learner(self.plan, start.fading, prior_variances(self.plan, start))
        return Memory(
            features=Running.start(self.plan.columns),
            target=Running.start(1),
            fading=jnp.asarray(start.fading, jnp.float64),
            learner=learner.init(first_params(self.plan, start)),
        )

    def _learn_row(self, memory: Memory, row: Array, fixed_scales: Array) -> Memory:
        columns = self.plan.columns
        scale = jax.tree.map(lambda leaf: leaf[0], memory.target)
        target = self.plan.law.prepare(row[columns], scale)
        numeric = self.plan.law == NUMBER  # no other law has a scale
        if numeric:
            target = jnp.where((scale.seen < STEADY) & ~fixed_scales, jnp.nan, target)
        learned, _ = make_learner(self.plan, memory.fading).step_unchecked(
            memory.learner, self._inputs(memory, row), jnp.stack([target, row[columns + 1]])
        )
        counted = jnp.where((row[columns + 1] > 0) & ~fixed_scales, _numbers(row), jnp.nan)
        return Memory(
            features=observe(memory.features, counted[:columns]) if self.plan.standardize else memory.features,
            target=observe(memory.target, counted[columns : columns + 1]) if numeric else memory.target,
            fading=memory.fading,
            learner=learned,
        )

    def _predict_row(self, memory: Memory, row: Array) -> Array:
        scale = jax.tree.map(lambda leaf: leaf[0], memory.target)
        learner = make_learner(self.plan, memory.fading)
        prediction = learner.predict_unchecked(memory.learner, self._inputs(memory, row))
        assert prediction.total_cov is not None
        missing = jnp.full((), jnp.nan)
        summary = self.plan.law.outcome(prediction.mean, prediction.total_cov, missing, missing, scale).summary
        if self.plan.law != NUMBER:
            return summary
        # Before the target has a scale: its mean so far, and no idea how far off.
        return jnp.where(jnp.isnan(summary), jnp.stack([scale.mean, jnp.full((), jnp.inf)]), summary)

    def _inputs(self, memory: Memory, row: Array) -> Inputs:
        values = _numbers(row[: self.plan.columns])
        if self.plan.standardize:
            return Inputs(features=standardise(memory.features, values), known=row[-1])
        return Inputs(features=jnp.where(jnp.isnan(values), 0.0, values), known=row[-1])

    @functools.cached_property
    def template(self) -> Memory:
        """The shapes and types of what the buffer holds."""
        with stream_numbers():
            return jax.eval_shape(lambda: self.fresh(Start(*(jnp.ones(()),) * 5, seed=jnp.zeros((), int))))

    def unpack(self, buffer: Array) -> Memory:
        """What the buffer holds."""
        return self._unpacked(buffer, lambda part, leaf: part.astype(leaf.dtype), jax.random.key(0))

    def unpack_host(self, buffer: np.ndarray) -> Memory:
        """What the buffer holds, as NumPy arrays of the buffer's own type."""
        return self._unpacked(buffer, lambda part, leaf: part, None)

    def _unpacked(self, buffer: Any, convert: Callable[[Any, Any], Any], key: Any) -> Memory:
        leaves, structure = jax.tree.flatten(self.template)
        found, first = [], 0
        for leaf in leaves:
            if _is_key(leaf):
                found.append(None if key is None else jnp.broadcast_to(key, leaf.shape))
            else:
                found.append(convert(buffer[first : first + leaf.size].reshape(leaf.shape), leaf))
                first += leaf.size
        return jax.tree.unflatten(structure, found)


def pack(memory: Memory) -> Float[Array, " n"]:
    """All leaves end to end, as float64; random keys are left out, since no learner here draws."""
    leaves = [leaf for leaf in jax.tree.leaves(memory) if not _is_key(leaf)]
    return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float64) for leaf in leaves])


def _aligned(*shape: int) -> np.ndarray:
    """NaNs from an address that JAX takes over as it is; others are copied by another thread, and waited for."""
    room = np.full(math.prod(shape) + ALIGNED // 8, np.nan)
    skipped = -room.ctypes.data % ALIGNED // 8
    return room[skipped : skipped + math.prod(shape)].reshape(shape)


def _numbers(values: Array) -> Array:
    """An infinite value is a missing one."""
    return jnp.where(jnp.isinf(values), jnp.nan, values)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


@functools.lru_cache(maxsize=64)
def make_machine(plan: Plan) -> Machine:
    """The machine of this plan: the same one, compiled once, for all who ask."""
    return Machine(plan)
