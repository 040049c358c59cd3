"""The seam between a model and the engine: linearise here, correct there, nothing else."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from natkal.families.base import Family
from natkal.rows import FactoredRows
from natkal.typing import Array, Float, Params


class Narrowing(NamedTuple):
    """What is not known of a model's state apart from theta: it blurs the output, and an observation narrows it.

    `spread` is the covariance of the raw output, given theta. `narrow(rows, factor, score, step)` is the carry after an
    observation with Fisher factor and score that already account for the spread: it takes the place of `correct`.
    """

    spread: Float[Array, "k k"]
    narrow: Callable[[Float[Array, "k p"], Float[Array, "k r"], Float[Array, " k"], Float[Array, " p"]], Any]


class Linearization(NamedTuple):
    """A model around one parameter value, for one input: `raw(theta + d) = raw + A d`, with A behind `pullback`.

    `narrowing` is None for a model whose state, if it has one, is known given theta. `factored`, where a model has it,
    is `pullback` with the outer products of affine layers left unmultiplied.
    """

    raw: Float[Array, " k"]
    pullback: Callable[[Float[Array, "m k"]], Float[Array, "m p"]]
    carry: Any
    narrowing: Narrowing | None = None
    factored: Callable[[Float[Array, "m k"]], FactoredRows] | None = None


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

    def correct(self, carry: Any, step: Float[Array, " p"]) -> Any:
        """The carry once the parameters have moved by `step`."""
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
