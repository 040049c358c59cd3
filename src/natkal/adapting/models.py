"""`nk.adapt`: a bank of everything that may be done with a trained model, and the model itself."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.banks.auto import SHARE, filters
from natkal.banks.bank import Bank
from natkal.banks.group import from_learners
from natkal.curvature import dense as full
from natkal.curvature import frozen, kronecker, last_layer
from natkal.curvature.units import find_layers
from natkal.engine import online
from natkal.engine.prior import layout_of
from natkal.laws import laws_for
from natkal.models import Model, static_model
from natkal.typing import Array, Params

SCALES = (1e-3, 1e-2, 0.1, 1.0)
"""Prior variances of what moves, times 1/fan-in: from nearly frozen to as before any training."""
FADINGS = (0.0, 1e-3)
DENSE_UP_TO = 1_000
"""Weights that get a full covariance; more get Kronecker factors."""


def adapt(base: Model, *, inputs: Any = None) -> Bank:
    """A learner that starts as this trained model, and follows what changes.

    `base` is a model with its trained parameters: `nk.static_model(apply, trained, family)`, of a function, a Flax or
    an Equinox module. Its family is the law of the answers as far as it is known; the noise of a Gaussian and the
    sharpness of probabilities are learned. The log loss is never more than ln 2 above that of the model left as it is,
    with what is learned of its law, over any stream. `inputs` is an example row, for a linear correction of the answers
    by the inputs too.

    >>> import jax, jax.numpy as jnp
    >>> import natkal as nk
    >>> trained = nk.static_model(lambda w, u: w * u, jnp.asarray(2.0), nk.families.Gaussian(0.01))
    >>> learner = nk.adapt(trained)
    >>> inputs = jax.random.normal(jax.random.key(0), (300,))
    >>> state, info = nk.run(learner, learner.init(), inputs, 3.0 * inputs)  # the plant has changed: 2 became 3
    >>> round(float(learner.predict(state, jnp.ones(())).mean[0]), 1)
    3.0
    """
    settings = [(scale, rate) for scale in SCALES for rate in FADINGS]
    groups = list(from_learners([online(base, prior_cov=1.0, curvature=frozen())]))
    groups.append(filters(base, full(kernel="immediate") if base.size <= DENSE_UP_TO else kronecker(), settings))
    if len(find_layers(layout_of(base)).layers) > 1:
        groups.append(filters(base, last_layer(full()), settings))
    if not jax.tree.leaves(base.init_carry(base.params)):
        groups.append(filters(_corrected(base, inputs), full(kernel="immediate"), settings))
    return Bank(groups=tuple(groups), laws=laws_for(base.outputs), share=SHARE, never_worse_than=0)


def _corrected(base: Model, inputs: Any) -> Model:
    """The trained model's raw answers and a linear function of them and of the inputs, which starts at 0."""
    answers = base.outputs.raw_dim
    width = answers + sum(np.size(leaf) for leaf in jax.tree.leaves(inputs))
    carry = base.init_carry(base.params)

    def apply(weights: Params, row: Any) -> Array:
        raw = base.linearize(base.params, carry, row).raw
        seen = [jnp.ravel(leaf) for leaf in jax.tree.leaves(row)] if inputs is not None else []
        return raw + jnp.concatenate([raw, *seen]) @ weights["weight"] + weights["bias"]

    dtype = jnp.result_type(*jax.tree.leaves(base.params))
    start = {"weight": np.zeros((width, answers), dtype), "bias": np.zeros(answers, dtype)}
    return static_model(apply, start, base.outputs)
