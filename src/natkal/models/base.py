"""The seam between a model and the engine: linearise, correct, roll forward, nothing else."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from natkal.families.base import Family
from natkal.rows import FactoredRows, Rows
from natkal.typing import Array, Float, Params


class Linearization(NamedTuple):
    """A model around one parameter value, for one input: `raw(theta + d) = raw + A d`, with A behind `pullback`.

    `carry` is the model's memory after this input. `correct(step, rows, factor, score)` is that memory once the
    parameters have moved by `step`, on an observation with Jacobian `rows`, Fisher factor and score. `spread` is the
    covariance of the raw output given theta, where the state is uncertain: factor and score must account for it. None
    stands for zero. `factored`, where a model has it, is `pullback` with the outer products of affine layers left
    unmultiplied.
    """

    raw: Float[Array, " k"]
    pullback: Callable[[Float[Array, "m k"]], Float[Array, "m p"]]
    carry: Any
    correct: Callable[[Float[Array, " p"], Rows, Float[Array, "k r"], Float[Array, " k"]], Any]
    spread: Float[Array, "k k"] | None = None
    factored: Callable[[Float[Array, "m k"]], FactoredRows] | None = None


class Rollout(NamedTuple):
    """The raw outputs of the next h steps: to first order a function of theta and of noise that enters on the way.

    `rows` is their Jacobian with respect to theta, through the past too. `spread` is the covariance of each step's raw
    output given theta, from the state, its process noise and the observations that are fed back. None stands for zero.
    """

    raw: Float[Array, "h k"]
    rows: Float[Array, "h k p"]
    spread: Float[Array, "h k k"] | None = None


Feed = Callable[[Float[Array, " t"]], Any]
"""The next input from the statistics T(y) of the observation before it."""


@runtime_checkable
class Model(Protocol):
    """Anything that predicts one observation from parameters, a carry and an input."""

    @property
    def params(self) -> Params:
        """The structure and shapes of the parameters."""
        ...

    @property
    def outputs(self) -> Family:
        """The law of an observation given the raw output."""
        ...

    @property
    def size(self) -> int:
        """How many numbers the parameters hold (p)."""
        ...

    def init_carry(self, params: Params) -> Any:
        """What the model remembers before the first observation."""
        ...

    def restart(self, params: Params, carry: Any) -> Any:
        """The carry at the start of a new sequence: nothing of the old one is remembered but the parameters."""
        ...

    def linearize(self, params: Params, carry: Any, inputs: Any) -> Linearization:
        """Predict, and differentiate the prediction with respect to the parameters."""
        ...

    def roll(self, params: Params, carry: Any, inputs: Any, horizon: int, feed: Feed | None) -> Rollout:
        """The next `horizon` outputs, for a row of `inputs` each; with `feed` for one row, and what `feed` makes."""
        ...

    def with_outputs(self, family: Family) -> "Model":
        """The same function of the parameters, its raw outputs read as those of `family`."""
        ...

    def unravel(self, flat: Float[Array, " p"]) -> Params:
        """A flat vector as the parameter pytree."""
        ...


def ravel(params: Params) -> Float[Array, " p"]:
    """The parameter pytree as one flat vector, leaves in `jax.tree` order."""
    return ravel_pytree(params)[0]


def ravel_rows(rows: Params) -> Float[Array, "m p"]:
    """A pytree whose leaves carry a leading axis of m rows, as an (m, p) matrix."""
    leaves = jax.tree.leaves(rows)
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in leaves], axis=1)


def flat_size(params: Params) -> int:
    """How many numbers the parameters hold (p)."""
    return sum(np.size(leaf) for leaf in jax.tree.leaves(params))
