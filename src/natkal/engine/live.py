"""A learner that is called once per observation, as a service is: its state stays in place on the device."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.engine.checks import check_observation, explain_shapes
from natkal.engine.learner import Learner
from natkal.engine.state import LearnerState, Prediction, StepInfo
from natkal.typing import Array

SMALL = 4096
"""Arrays of fewer numbers travel together, one vector per dtype: each array of a call costs about two microseconds."""


class Place(NamedTuple):
    """Where a leaf travels: which array, from where on in it, and its shape; `is_key` for keys of random streams."""

    array: int
    first: int
    shape: tuple[int, ...]
    is_key: bool


class Packing:
    """A pytree as few arrays: small leaves of one dtype side by side in one vector, large ones as they are."""

    def __init__(self, tree: Any) -> None:
        leaves, self.structure = jax.tree.flatten(tree)
        self.places: list[Place] = []
        self.members: list[list[int]] = []
        together: dict[Any, int] = {}
        for number, leaf in enumerate(leaves):
            is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            plain = jax.eval_shape(jax.random.key_data, leaf) if is_key else leaf
            small = math.prod(plain.shape) < SMALL
            array = together.get(plain.dtype, len(self.members)) if small else len(self.members)
            if array == len(self.members):
                self.members.append([])
                if small:
                    together[plain.dtype] = array
            first = sum(math.prod(self.places[other].shape) for other in self.members[array])
            self.members[array].append(number)
            self.places.append(Place(array=array, first=first, shape=plain.shape, is_key=is_key))

    def pack(self, tree: Any) -> tuple[Array, ...]:
        """The few arrays; large leaves are not copied."""
        plain = [
            jax.random.key_data(leaf) if place.is_key else leaf
            for leaf, place in zip(jax.tree.leaves(tree), self.places, strict=True)
        ]
        return tuple(
            jnp.concatenate([plain[number].reshape(-1) for number in members])
            if math.prod(self.places[members[0]].shape) < SMALL
            else plain[members[0]]
            for members in self.members
        )

    def unpack(self, arrays: Any) -> Any:
        """The pytree again."""
        leaves = []
        for place in self.places:
            array = arrays[place.array]
            if array.shape != place.shape:
                array = array[place.first : place.first + math.prod(place.shape)].reshape(place.shape)
            leaves.append(jax.random.wrap_key_data(array) if place.is_key else array)
        return jax.tree.unflatten(self.structure, leaves)


class Live:
    """`step` and `predict` without the state, which is kept here; build it with `live`."""

    def __init__(self, learner: Learner, state: LearnerState) -> None:
        self.learner = learner
        self._packing = Packing(state)
        self._arrays = tuple(array.copy() for array in self._packing.pack(state))
        self._told: Packing | None = None
        self._advance = jax.jit(self._step, donate_argnums=0)
        self._expect = jax.jit(lambda arrays, inputs: learner.predict_unchecked(self._packing.unpack(arrays), inputs))

    @property
    def state(self) -> LearnerState:
        """The learner's state now; a copy, which later calls do not change."""
        return self._packing.unpack(tuple(array.copy() for array in self._arrays))

    def step(self, inputs: Any, target: Any) -> StepInfo:
        """Predict, observe, learn; what the observation told, as NumPy arrays."""
        check_observation(self.learner.model, inputs, target)
        return self.step_unchecked(inputs, target)

    def step_unchecked(self, inputs: Any, target: Any) -> StepInfo:
        """`step` on values already checked."""
        self._arrays, told = self._advance(self._arrays, inputs, target)
        assert self._told is not None  # set when `_advance` was traced
        return self._told.unpack([np.asarray(array) for array in told])

    def predict(self, inputs: Any) -> Prediction:
        """What is expected of the next y for these inputs; learns nothing."""
        check_observation(self.learner.model, inputs)
        state = jax.eval_shape(self._packing.unpack, self._arrays)
        with explain_shapes(self.learner.model, state.params, state.carry, inputs):
            return self._expect(self._arrays, inputs)

    def _step(self, arrays: tuple[Array, ...], inputs: Any, target: Any) -> tuple[tuple[Array, ...], Any]:
        state, info = self.learner.step_unchecked(self._packing.unpack(arrays), inputs, target)
        self._told = Packing(info)
        return self._packing.pack(state), self._told.pack(info)


def live(learner: Learner, state: LearnerState) -> Live:
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
