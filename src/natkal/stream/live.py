"""A learner that is called once per observation, as a service is: its state stays in place on the device."""

import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.engine.protocol import Learner, Prediction
from natkal.stream.checks import check_learner, check_observation, explain_shapes
from natkal.typing import Array

SMALL = 4096
"""Arrays of fewer numbers travel together, as words of one vector: each array of a call costs microseconds."""

POLLS = 100
"""How often to ask for a result before going to sleep, for some 50 microseconds: waking up takes about as long."""

let_others_run: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


class Place(NamedTuple):
    """A small leaf among the words: from where to where, and what it is; `is_key` for keys of random streams."""

    first: int
    end: int
    shape: tuple[int, ...]
    dtype: np.dtype
    is_key: bool


class Packing:
    """A pytree as one vector of 32-bit words, where small leaves lie one after the other, and its large leaves."""

    def __init__(self, tree: Any) -> None:
        leaves, self.structure = jax.tree.flatten(tree)
        self.places: list[Place | None] = []  # None: a large leaf
        end = 0
        for leaf in leaves:
            is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            plain = jax.eval_shape(jax.random.key_data, leaf) if is_key else leaf
            count = math.prod(plain.shape)
            if count >= SMALL and not is_key:
                self.places.append(None)
                continue
            first, end = end, end + -(-count * plain.dtype.itemsize // 4)
            self.places.append(Place(first, end, plain.shape, np.dtype(plain.dtype), is_key))
        small = [place for place in self.places if place is not None]
        self.record = np.dtype(
            {
                "names": [str(number) for number in range(len(small))],
                "formats": [(place.dtype, place.shape) for place in small],
                "offsets": [4 * place.first for place in small],
                "itemsize": 4 * end,
            }
        )

    def pack(self, tree: Any) -> tuple[Array, tuple[Array, ...]]:
        """The words, and the large leaves as they are."""
        leaves = list(zip(jax.tree.leaves(tree), self.places, strict=True))
        small = [_words(jax.random.key_data(leaf) if place.is_key else leaf) for leaf, place in leaves if place]
        return jnp.concatenate(small), tuple(leaf for leaf, place in leaves if place is None)

    def unpack(self, words: Array, large: tuple[Array, ...]) -> Any:
        """The pytree again."""
        rest = iter(large)
        leaves = [next(rest) if place is None else _leaf(words, place) for place in self.places]
        return jax.tree.unflatten(self.structure, leaves)

    def read(self, words: Array, large: tuple[Array, ...], rows: int | None = None) -> Any:
        """The pytree as Python numbers and NumPy arrays, all small leaves by one look at the words.

        With `rows`, the first so many rows of every array.
        """
        leaves: Any = np.asarray(words).view(self.record).item()
        if large:
            small, rest = iter(leaves), iter(large)
            leaves = [np.asarray(next(rest)) if place is None else next(small) for place in self.places]
        if rows is not None:
            leaves = [leaf[:rows] for leaf in leaves]
        return self.structure.unflatten(leaves)


def _words(leaf: Array) -> Array:
    """The bytes of an array, filled up to whole words."""
    flat = leaf.reshape(-1).astype(jnp.uint8) if leaf.dtype == bool else leaf.reshape(-1)
    in_a_word = 4 // flat.dtype.itemsize
    if in_a_word > 1:
        flat = jnp.pad(flat, (0, -len(flat) % in_a_word)).reshape(-1, in_a_word)
    return jax.lax.bitcast_convert_type(flat, jnp.uint32).reshape(-1)


def _leaf(words: Array, place: Place) -> Array:
    """The array whose bytes these are."""
    dtype = np.dtype(np.uint8) if place.dtype == bool else place.dtype
    found = words[place.first : place.end].reshape((-1, 2) if dtype.itemsize == 8 else (-1,))
    flat = jax.lax.bitcast_convert_type(found, dtype).reshape(-1)[: math.prod(place.shape)]
    array = flat.astype(place.dtype).reshape(place.shape)
    return jax.random.wrap_key_data(array) if place.is_key else array


def linger(result: Array) -> None:
    """Stay awake until the result is there, or for a short while; whoever computes it may have this core meanwhile."""
    for _ in range(POLLS):
        if result.is_ready():  # pyright: ignore[reportAttributeAccessIssue]
            return
        let_others_run()


class Live:
    """`step` and `predict` without the state, which is kept here; build it with `live`."""

    def __init__(self, learner: Learner, state: Any) -> None:
        check_learner(learner, state)
        self.learner = learner
        self._packing = Packing(state)
        self._shapes = jax.eval_shape(lambda: state)
        self._told: Packing | None = None
        words, large = jax.jit(self._packing.pack)(state)
        self._held = words, tuple(leaf.copy() for leaf in large)
        self._unpack = jax.jit(self._packing.unpack)
        self._advance = jax.jit(self._step, donate_argnums=1)
        self._expect = jax.jit(lambda held, inputs: learner.predict(self._packing.unpack(*held), inputs))

    @property
    def state(self) -> Any:
        """The learner's state now; a copy, which later calls do not change."""
        words, large = self._held
        return self._unpack(words, tuple(leaf.copy() for leaf in large))

    def step(self, inputs: Any, target: Any) -> Any:
        """Predict, observe, learn; what the observation told, as Python numbers and NumPy arrays."""
        check_observation(self.learner, inputs, target)
        with explain_shapes(lambda row: self.learner.predict(self._shapes, row), inputs):
            return self.step_unchecked(inputs, target)

    def step_unchecked(self, inputs: Any, target: Any) -> Any:
        """`step` on values already checked."""
        self._held, told = self._advance(*self._held, inputs, target)
        linger(told[0])
        assert self._told is not None  # set when `_advance` was traced
        return self._told.read(*told)

    def predict(self, inputs: Any) -> Prediction:
        """What is expected of the next y for these inputs; learns nothing."""
        check_observation(self.learner, inputs)
        with explain_shapes(lambda row: self.learner.predict(self._shapes, row), inputs):
            return self._expect(self._held, inputs)

    def _step(self, words: Array, large: tuple[Array, ...], inputs: Any, target: Any) -> tuple[Any, Any]:
        state, info = self.learner.step(self._packing.unpack(words, large), inputs, target)
        info = jax.tree.map(jnp.asarray, info)
        self._told = Packing(info)
        return self._packing.pack(state), self._told.pack(info)


def live(learner: Learner, state: Any) -> Live:
    """A learner to call observation by observation: the state is held and updated in place, without a copy.

    >>> import jax.numpy as jnp
    >>> import natkal as nk
    >>> model = nk.static_model(lambda w, u: w * u, jnp.zeros(()), nk.families.Gaussian(1.0))
    >>> learner = nk.online(model, prior_cov=1.0)
    >>> service = nk.live(learner, learner.init(jnp.zeros(())))
    >>> for _ in range(3):
    ...     info = service.step(1.0, 1.0)
    >>> round(float(service.state.params), 6)
    0.75
    >>> round(float(service.predict(2.0).mean[0]), 6)
    1.5
    """
    return Live(learner, state)
