"""Independent sequences side by side: one parameter set, a memory for each sequence, one step for all of them."""

import dataclasses
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import block_diag

from natkal.families import Family, Product
from natkal.models.base import Feed, Linearization, Model, Rollout
from natkal.rows import Rows, dense_rows
from natkal.typing import Array, Float, Params


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """n copies of a model that share their parameters; build it with `panel`.

    An observation is one row of every sequence: inputs have a leading axis of n, the target is a vector of n, NaN
    where a sequence has none. The rows of the n Jacobians stand below each other, so that the step is the joint one:
    Lambda <- keep Lambda + sum_i A_i' C_i C_i' A_i, and each sequence's state moves by its own G_i times the step.
    """

    model: Model
    sequences: int

    @property
    def params(self) -> Params:
        """Those of the model: there is one set."""
        return self.model.params

    @property
    def size(self) -> int:
        """How many numbers the parameters hold (p)."""
        return self.model.size

    @cached_property
    def outputs(self) -> Family:
        """Independent observations given the parameters, one for each sequence."""
        return Product(*[self.model.outputs] * self.sequences)

    def init_carry(self, params: Params) -> Any:
        """Every sequence at its start."""
        one = self.model.init_carry(params)
        return jax.tree.map(lambda leaf: jnp.repeat(jnp.asarray(leaf)[None], self.sequences, axis=0), one)

    def restart(self, params: Params, carry: Any) -> Any:
        """Every sequence at the start of a new one."""
        return jax.vmap(lambda own: self.model.restart(params, own))(carry)

    def restart_some(self, params: Params, carry: Any, which: Any) -> Any:
        """The sequences that `which` (n,) names start again, the others go on."""
        fresh = self.restart(params, carry)
        chosen = jnp.asarray(which, bool)
        return jax.tree.map(
            lambda new, old: jnp.where(chosen.reshape(-1, *(1,) * (old.ndim - 1)), new, old), fresh, carry
        )

    def linearize(self, params: Params, carry: Any, inputs: Any) -> Linearization:
        """All sequences at once: raw outputs end to end, the rows of their Jacobians below each other."""

        def one(carry: Any, inputs: Any) -> tuple[Array, Array, Any, Array | None]:
            around = self.model.linearize(params, carry, inputs)
            rows = around.pullback(jnp.eye(len(around.raw), dtype=around.raw.dtype))
            return around.raw, rows, around.carry, around.spread

        raw, rows, moved, spread = jax.vmap(one)(carry, inputs)
        count, outputs = raw.shape
        flat = rows.reshape(count * outputs, -1)

        def correct(step: Float[Array, " p"], seen: Rows, factor: Array, score: Array) -> Any:
            def own(carry: Any, inputs: Any, rows: Array, factor: Array, score: Array) -> Any:
                return self.model.linearize(params, carry, inputs).correct(step, rows, factor, score)

            parts = dense_rows(seen).reshape(count, outputs, -1)
            factors = factor.reshape(count, outputs, -1)
            return jax.vmap(own)(carry, inputs, parts, factors, score.reshape(count, outputs))

        return Linearization(
            raw=raw.reshape(-1),
            pullback=lambda covectors: covectors @ flat,
            carry=moved,
            correct=correct,
            spread=None if spread is None else block_diag(*spread),
        )

    def roll(self, params: Params, carry: Any, inputs: Any, horizon: int, feed: Feed | None) -> Rollout:
        """Every sequence rolled forward; `inputs` (horizon, n, ..), with `feed` (n, ..) and each its own."""
        own = inputs if feed is not None else jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), inputs)
        ahead = jax.vmap(lambda carry, inputs: self.model.roll(params, carry, inputs, horizon, feed))(carry, own)
        raw = jnp.swapaxes(ahead.raw, 0, 1).reshape(horizon, -1)
        rows = jnp.swapaxes(ahead.rows, 0, 1).reshape(horizon, raw.shape[1], -1)
        spread = None
        if ahead.spread is not None:
            spread = jax.vmap(lambda step: block_diag(*step))(jnp.swapaxes(ahead.spread, 0, 1))
        return Rollout(raw=raw, rows=rows, spread=spread)

    def with_outputs(self, family: Family) -> "Panel":
        """The same network, each sequence's outputs read as those of the parts of `family`."""
        parts = getattr(family, "families", (family,))
        return Panel(self.model.with_outputs(parts[0]), self.sequences)

    def unravel(self, flat: Float[Array, " p"]) -> Params:
        """A flat vector as the parameter pytree."""
        return self.model.unravel(flat)


def panel(model: Model, sequences: int) -> Panel:
    """A model for `sequences` independent sequences side by side, which share its parameters.

    >>> import jax, jax.numpy as jnp
    >>> import natkal as nk
    >>> model = nk.recurrent_network(jax.random.key(0), nk.cells.gru(2), 1, nk.families.Gaussian(1.0))
    >>> learner = nk.online(nk.panel(model, 3))
    >>> state, info = nk.run(learner, learner.init(), jnp.ones((5, 3, 1)), jnp.ones((5, 3)))
    >>> info.prediction.mean.shape
    (5, 3)
    """
    if sequences < 1:
        raise ValueError(f"sequences: must be at least 1, got {sequences}")
    if model.outputs.event_shape != ():
        raise ValueError(f"model: each sequence observes one number at a time, and {model.outputs} observes several")
    return Panel(model, sequences)
