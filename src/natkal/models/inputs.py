"""An example input for a model, found without data: from the shapes that its function accepts."""

from typing import Any

import jax
import numpy as np

from natkal.models.base import Model
from natkal.typing import Array


def infer_inputs(model: Model) -> np.ndarray | None:
    """Zeros in the first shape that `model` accepts: a number, then vectors by length; None where it takes neither.

    Lengths are tried in increasing order among 1 and the sizes of the parameters' axes. Only shapes are evaluated. A
    function that broadcasts its input may accept a shape smaller than the one it is meant for.

    >>> import jax.numpy as jnp
    >>> import natkal as nk
    >>> model = nk.static_model(lambda w, u: w @ u, jnp.zeros(3), nk.families.Gaussian(1.0))
    >>> infer_inputs(model).shape
    (3,)
    """
    leaves = jax.tree.leaves(model.params)
    dtype = jax.numpy.result_type(*leaves)

    def raw(params: Any, inputs: Any) -> Array:
        return model.linearize(params, model.init_carry(params), inputs).raw

    for shape in ((), *((size,) for size in sorted({1, *(size for leaf in leaves for size in np.shape(leaf))}))):
        try:
            jax.eval_shape(raw, model.params, jax.ShapeDtypeStruct(shape, dtype))
        except Exception:  # whatever a function of the user's raises on a shape it was not written for
            continue
        return np.zeros(shape, dtype)
    return None
