"""Models of rewards: one output for a context and one of several arms, and all arms of a context at once.

The inputs are a dictionary: `{"context": ..., "arm": number}` where arms are the heads of a network, `{"shared": ...,
"arm": features}` where an arm is described by features. With one more axis on `"arm"` they name several arms.
"""

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from natkal.families import Family, Product
from natkal.models.base import Feed, Linearization, Model, Rollout
from natkal.rows import Rows
from natkal.typing import Array, Float, Params


class ArmOutputs(NamedTuple):
    """The raw outputs of n arms, and the rows of their Jacobian, arm by arm."""

    raw: Float[Array, "n k"]
    rows: Rows


@runtime_checkable
class ArmsModel(Model, Protocol):
    """A model that can be asked for several arms at once."""

    def every_arm(self, params: Params, carry: Any, inputs: Any, *, factored: bool) -> ArmOutputs:
        """The raw outputs of the arms that `inputs["arm"]` has along its first axis."""
        ...


class _Wrapped:
    """All that the wrapper of a model does not change."""

    model: Model

    @property
    def params(self) -> Params:
        """The inner model's."""
        return self.model.params

    @property
    def size(self) -> int:
        """The inner model's."""
        return self.model.size

    def init_carry(self, params: Params) -> Any:
        """The inner model's."""
        return self.model.init_carry(params)

    def restart(self, params: Params, carry: Any) -> Any:
        """The inner model's."""
        return self.model.restart(params, carry)

    def roll(self, params: Params, carry: Any, inputs: Any, horizon: int, feed: Feed | None) -> Rollout:
        """Refused: rewards depend on decisions that have not been taken."""
        raise ValueError("forecast: rewards of decisions to come cannot be forecast")

    def unravel(self, flat: Float[Array, " p"]) -> Params:
        """The inner model's."""
        return self.model.unravel(flat)


@dataclasses.dataclass(frozen=True, eq=False)
class HeadsModel(_Wrapped):
    """Arms as heads of one model: the inner model has `arms` outputs of the family, and `inputs["arm"]` picks one.

    One forward pass serves all arms; the Jacobian of each is a row of the inner model's.
    """

    model: Model
    outputs: Family
    arms: int

    def linearize(self, params: Params, carry: Any, inputs: Any) -> Linearization:
        """The inner model's, with covectors on the other heads zero."""
        around = self.model.linearize(params, carry, inputs["context"])
        heads = around.raw.reshape(self.arms, -1)

        def on_all(covectors: Float[Array, "m k"]) -> Float[Array, "m n"]:
            empty = jnp.zeros((len(covectors), *heads.shape), covectors.dtype)
            return empty.at[:, inputs["arm"]].set(covectors).reshape(len(covectors), -1)

        factored = around.factored
        return Linearization(
            raw=heads[inputs["arm"]],
            pullback=lambda covectors: around.pullback(on_all(covectors)),
            carry=around.carry,
            correct=lambda step, rows, factor, score: around.correct(
                step, rows, on_all(factor.T).T, on_all(score[None])[0]
            ),
            factored=None if factored is None else lambda covectors: factored(on_all(covectors)),
        )

    def every_arm(self, params: Params, carry: Any, inputs: Any, *, factored: bool) -> ArmOutputs:
        """One linearisation; one backward pass for each arm."""
        around = self.model.linearize(params, carry, inputs["context"])
        heads = around.raw.reshape(self.arms, -1)
        whole = jnp.eye(around.raw.size, dtype=around.raw.dtype).reshape(self.arms, -1, around.raw.size)
        covectors = whole[inputs["arm"]].reshape(-1, around.raw.size)
        pull = around.factored if factored and around.factored is not None else around.pullback
        return ArmOutputs(raw=heads[inputs["arm"]], rows=pull(covectors))

    def with_outputs(self, family: Family) -> "HeadsModel":
        """The same heads, read as outputs of `family`."""
        return heads_model(self.model, family, self.arms)


@dataclasses.dataclass(frozen=True, eq=False)
class DescribedArmsModel(_Wrapped):
    """Arms described by features: the inner model takes `{"shared": ..., "arm": features}` as its inputs."""

    model: Model

    @property
    def outputs(self) -> Family:
        """The inner model's."""
        return self.model.outputs

    def linearize(self, params: Params, carry: Any, inputs: Any) -> Linearization:
        """The inner model's."""
        return self.model.linearize(params, carry, inputs)

    def every_arm(self, params: Params, carry: Any, inputs: Any, *, factored: bool) -> ArmOutputs:
        """A linearisation for each arm; what does not depend on the arm is computed once."""

        def one(arm: Any) -> tuple[Array, Array]:
            around = self.model.linearize(params, carry, {**inputs, "arm": arm})
            return around.raw, around.pullback(jnp.eye(len(around.raw), dtype=around.raw.dtype))

        raw, rows = jax.vmap(one)(inputs["arm"])
        return ArmOutputs(raw=raw, rows=rows.reshape(-1, rows.shape[-1]))

    def with_outputs(self, family: Family) -> "DescribedArmsModel":
        """The same function, its outputs read as those of `family`."""
        return DescribedArmsModel(self.model.with_outputs(family))


def heads_model(model: Model, family: Family, arms: int) -> HeadsModel:
    """A model with `arms` outputs as a model of the reward of one arm."""
    return HeadsModel(model=model.with_outputs(Product(*[family] * arms)), outputs=family, arms=arms)
