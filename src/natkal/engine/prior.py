"""What `prior_cov` may be: a number, variances as a pytree or vector, a matrix, or nothing."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from natkal.curvature import Prior
from natkal.engine.checks import all_concrete
from natkal.models import Model, ravel
from natkal.typing import Params


def layout_of(model: Model) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The name and shape of each leaf of the parameters."""
    leaves = jax.tree.leaves_with_path(model.params)
    return tuple((jax.tree_util.keystr(path), tuple(np.shape(leaf))) for path, leaf in leaves)


def make_prior(model: Model, params: Params, prior_cov: Any, *, scale: ArrayLike, kept: bool) -> Prior:
    """P_0 = `scale * prior_cov` on the flat parameter vector, in the parameters' own precision."""
    layout = layout_of(model)
    if prior_cov is None:
        return Prior(cov=None, kept=None, layout=layout)
    cov = _flat(model, prior_cov).astype(ravel(params).dtype)
    return Prior(cov=cov * jnp.asarray(scale, cov.dtype), kept=cov if kept else None, layout=layout)


def _flat(model: Model, prior_cov: Any, numpy: Any = jnp) -> Any:
    """As variances (p,) or a matrix (p, p), an array of JAX or of NumPy."""
    size = model.size
    structure = jax.tree.structure(model.params)
    if jax.tree.structure(prior_cov) == structure and not jax.tree_util.treedef_is_leaf(structure):
        spread = jax.tree.map(lambda value, leaf: numpy.broadcast_to(value, np.shape(leaf)), prior_cov, model.params)
        return numpy.concatenate([leaf.ravel() for leaf in jax.tree.leaves(spread)])
    if isinstance(prior_cov, list | tuple | dict):
        raise ValueError(
            f"prior_cov: its structure {jax.tree.structure(prior_cov)} is not that of the parameters, {structure}"
        )
    array = numpy.asarray(prior_cov)
    if array.ndim == 0:
        return numpy.full(size, array)
    if array.shape in ((size,), (size, size)):
        return array
    if jax.tree_util.treedef_is_leaf(structure) and array.shape == np.shape(model.params):
        return array.ravel()
    raise ValueError(
        f"prior_cov: shape {array.shape} fits neither ({size},) nor ({size}, {size}) for {size} parameters"
    )


def check_prior(model: Model, prior_cov: Any) -> None:
    """Refuse a concrete prior that is not finite, symmetric and positive definite."""
    if prior_cov is None or not all_concrete(prior_cov):
        return
    cov = np.asarray(_flat(model, prior_cov, np), float)  # NumPy compiles nothing, and works under any trace
    if not np.isfinite(cov).all():
        raise ValueError("prior_cov: holds a value that is not finite")
    if cov.ndim == 1:
        if (cov <= 0).any():
            raise ValueError(f"prior_cov: every variance must be positive, got {cov.min()}")
        return
    if not np.allclose(cov, cov.T, rtol=1e-6, atol=1e-8 * np.abs(cov).max()):
        raise ValueError("prior_cov: the matrix is not symmetric")
    lowest = float(np.linalg.eigvalsh(cov).min())
    if lowest <= 0:
        raise ValueError(f"prior_cov: the matrix is not positive definite, its smallest eigenvalue is {lowest:.3g}")
