"""How many inputs feed each parameter's unit: what priors and initial weights are scaled by."""

import math
from typing import Any

import jax
import numpy as np

from natkal.typing import Params


def fan_in(params: Params) -> Params:
    """The fan-in of each leaf, as a pytree of whole numbers.

    A weight of shape (.., out) has fan-in `prod(shape[:-1])`; a vector takes that of the first weight beside it in the
    same container whose last axis has its length (the bias of that layer), and 1 where there is none.
    """
    leaves = jax.tree.leaves_with_path(params)

    def of(path: tuple[Any, ...], leaf: Any) -> int:
        shape = np.shape(leaf)
        if len(shape) >= 2:
            return math.prod(shape[:-1])
        for other_path, other in leaves:
            beside = bool(path) and len(other_path) == len(path) and other_path[:-1] == path[:-1]
            if shape and beside and np.ndim(other) >= 2 and np.shape(other)[-1] == shape[0]:
                return math.prod(np.shape(other)[:-1])
        return 1

    return jax.tree.map_with_path(of, params)


def fan_in_prior(params: Params, scale: float = 1.0) -> Params:
    """Prior variances `scale` / fan-in for weights and biases alike: the paper's J_0 = diag(fan-in)."""
    return jax.tree.map(lambda leaf, size: np.full(np.shape(leaf), scale / size), params, fan_in(params))
