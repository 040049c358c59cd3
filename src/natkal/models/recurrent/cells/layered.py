"""Cells one above the other, with a nonlinear map between each and the next."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from natkal.models.recurrent.cells.base import Cell, UnitCell, readout_params
from natkal.typing import Array, Float, Params


@dataclasses.dataclass(frozen=True, eq=False)
class Stack(Cell):
    """`z_0 = u`, `x_l' = layer_l(x_l, z_{l-1})`, `z_l = tanh(output(x_l') W_l + b_l)`; build it with `stack`.

    The weights are `{"layers": [..], "maps": [..]}`, and the state is the tuple of the layers' states.
    """

    layers: tuple[UnitCell, ...]

    @property
    def width(self) -> int:
        """That of the last layer."""
        return self.layers[-1].width

    def params(self, key: Array, inputs: int) -> Params:
        """Each layer's own first weights; maps `N(0, 1/fan_in)` that give as many numbers as their layer has units."""
        keys = jax.random.split(key, 2 * len(self.layers))
        sizes = [inputs, *(layer.units for layer in self.layers)]
        layers = [layer.params(keys[2 * at], sizes[at]) for at, layer in enumerate(self.layers)]
        maps = [readout_params(keys[2 * at + 1], layer.width, layer.units) for at, layer in enumerate(self.layers[:-1])]
        return {"layers": layers, "maps": maps}

    def state(self) -> tuple[Any, ...]:
        """Every layer at rest."""
        return tuple(layer.state() for layer in self.layers)

    def output(self, state: tuple[Any, ...]) -> Float[Array, " width"]:
        """That of the last layer."""
        return self.layers[-1].output(state[-1])

    def advance(self, weights: Params, state: tuple[Any, ...], inputs: Float[Array, " inputs"]) -> tuple[Any, ...]:
        """From the first layer to the last, all within one step."""
        moved, driving = [], inputs
        for at, layer in enumerate(self.layers):
            moved.append(layer.advance(weights["layers"][at], state[at], driving))
            if at < len(weights["maps"]):
                driving = self.between(weights, at, moved[at])
        return tuple(moved)

    def between(self, weights: Params, at: int, state: Any) -> Float[Array, " units"]:
        """z_l, the input of the layer above number `at`."""
        layer_map = weights["maps"][at]
        return jnp.tanh(self.layers[at].output(state) @ layer_map["weight"] + layer_map["bias"])


def stack(*layers: UnitCell) -> Stack:
    """Layers of units with tanh maps between them, the first one fed by the inputs.

    A layer's state depends on the weights of the layers below along its whole past, so that no sensitivity with a
    vector for each unit is exact: `rtrl()` is, at its cost, and `layerwise()` is linear in the parameters and biased.
    One layer under a readout with hidden units is nonlinear and exact: `recurrent_network(.., hidden=(32,))`.
    """
    if not layers:
        raise ValueError("layers: at least one cell is needed, got none")
    return Stack(layers)
