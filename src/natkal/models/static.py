"""Memoryless models: the prediction depends on the parameters and the current input alone."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from natkal.families.base import Family
from natkal.families.coordinates import in_natural_coordinates
from natkal.models.affine import linearize_factored
from natkal.models.base import Feed, Linearization, Rollout, flat_size, ravel_rows
from natkal.models.modules import is_module, static_parts
from natkal.models.rollout import unroll
from natkal.rows import FactoredRows
from natkal.typing import Array, Float, Params

Output = Literal["unconstrained", "natural", "mean"]


@dataclasses.dataclass(frozen=True, eq=False)
class StaticModel:
    """`raw = apply(params, u)` under an exponential family; build it with `static_model`."""

    apply: Callable[[Params, Any], Array]
    params: Params
    family: Family
    outputs: Family

    @property
    def size(self) -> int:
        """How many numbers the parameters hold (p)."""
        return flat_size(self.params)

    def init_carry(self, params: Params) -> tuple[()]:
        """A static model remembers nothing."""
        return ()

    def restart(self, params: Params, carry: tuple[()]) -> tuple[()]:
        """Nothing to forget."""
        return carry

    def raw(self, params: Params, inputs: Any) -> Float[Array, " k"]:
        """The output in the coordinates of `self.outputs`."""
        raw = jnp.reshape(self.apply(params, inputs), (-1,))
        if raw.size not in self.outputs.raw_sizes:
            sizes = " or ".join(map(str, self.outputs.raw_sizes))
            many = all(jnp.ndim(leaf) > 1 for leaf in jax.tree.leaves(inputs))
            hint = "; this is one row, for many of them see nk.predict_many" if many else ""
            raise ValueError(f"apply: gives {raw.size} numbers per observation, {self.family} takes {sizes}{hint}")
        return raw

    def natural(self, params: Params, inputs: Any) -> Float[Array, " k"]:
        """The natural parameters predicted for these inputs."""
        return self.outputs.link(self.raw(params, inputs))

    def mean(self, params: Params, inputs: Any) -> Float[Array, " k"]:
        """The mean parameters, the paper's y-hat = h(theta, u)."""
        return self.outputs.mean(self.natural(params, inputs))

    def linearize(self, params: Params, carry: tuple[()], inputs: Any) -> Linearization:
        """Predict, with one backward pass per row asked of `pullback` or `factored`."""
        raw, vjp = jax.vjp(lambda params: self.raw(params, inputs), params)

        def factored(rows: Float[Array, "m k"]) -> FactoredRows:
            # The program is taken apart only where a curvature asks; XLA then shares the forward pass with `raw`.
            return linearize_factored(self.raw, params, inputs)[1](rows)

        return Linearization(
            raw=raw,
            pullback=lambda rows: ravel_rows(jax.vmap(lambda row: vjp(row)[0])(rows)),
            carry=carry,
            correct=lambda step, rows, factor, score: carry,
            factored=factored,
        )

    def roll(self, params: Params, carry: tuple[()], inputs: Any, horizon: int, feed: Feed | None) -> Rollout:
        """A prediction for each row of inputs; with `feed`, each later row is made of the output before it."""
        if feed is None:

            def ahead(row: Any) -> Rollout:
                around = self.linearize(params, carry, row)
                return Rollout(raw=around.raw, rows=around.pullback(jnp.eye(len(around.raw), dtype=around.raw.dtype)))

            return jax.vmap(ahead)(inputs)

        def transition(params: Params, state: Array, row: Any, noise: Array | None) -> tuple[Array, Array]:
            return state, self.raw(params, row)

        unrolled = unroll(transition, self.outputs, params, jnp.zeros(0), inputs, horizon, feed)
        return Rollout(raw=unrolled.raw, rows=unrolled.by_params, spread=unrolled.noise)

    def with_outputs(self, family: Family) -> "StaticModel":
        """The same function, its outputs read as the unconstrained numbers of `family`."""
        return dataclasses.replace(self, family=family, outputs=family)

    def unravel(self, flat: Float[Array, " p"]) -> Params:
        """A flat vector as the parameter pytree."""
        return ravel_pytree(self.params)[1](flat)


def static_model(
    apply: Callable[[Params, Any], Array] | Any,
    params: Params | None = None,
    family: Family | None = None,
    *,
    output: Output = "unconstrained",
) -> StaticModel:
    """A memoryless model `apply(params, u)` of an observation with law `family`.

    `apply` may be an Equinox or Flax NNX module, whose parameters are then the default for `params`, or a Flax Linen
    module with its variables as `params`; what is not a floating-point parameter stays in the module.

    `params` gives the structure and shapes of the parameters; learning starts where `learner.init(params)` says.
    `output` says what `apply` returns: `"unconstrained"` numbers that `family.link` makes natural parameters (the
    default: always in the family's domain), `"natural"` parameters, or `"mean"` parameters (the paper's y-hat).

    >>> import jax.numpy as jnp
    >>> import natkal as nk
    >>> model = nk.static_model(lambda w, u: w @ u, jnp.zeros(3), nk.families.Bernoulli())
    >>> model.mean(jnp.zeros(3), jnp.ones(3)).tolist()
    [0.5]
    """
    if is_module(apply):
        apply, params = static_parts(apply, params)
    if not isinstance(family, Family):
        raise ValueError(f"family: must be one of natkal.families, got {family!r}")
    for path, leaf in jax.tree.leaves_with_path(params):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            name = jax.tree_util.keystr(path) or "params"
            raise ValueError(f"params: {name} has dtype {jnp.result_type(leaf)}; every leaf must be floating point")
    if not jax.tree.leaves(params):
        raise ValueError("params: the pytree has no leaves, there is nothing to learn")
    match output:
        case "unconstrained":
            family.check_link()
            return StaticModel(apply=apply, params=params, family=family, outputs=family)
        case "natural":
            return StaticModel(apply=apply, params=params, family=family, outputs=in_natural_coordinates(family))
        case "mean":

            def natural_from_mean(params: Params, inputs: Any) -> Array:
                return family.natural(jnp.reshape(apply(params, inputs), (-1,)))

            return StaticModel(
                apply=natural_from_mean, params=params, family=family, outputs=in_natural_coordinates(family)
            )
        case _:
            raise ValueError(f'output: must be "unconstrained", "natural" or "mean", got {output!r}')
