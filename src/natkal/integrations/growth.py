"""A learner laid into a larger one: what it knew stays where it was, the rest is the prior."""

import math

import jax
import numpy as np

from natkal.engine.state import LearnerState
from natkal.integrations.machine import Machine, Memory
from natkal.learners.bank import BankState
from natkal.tabular.scaling import Running
from natkal.typing import Params


def grown(
    old: Machine, buffer: np.ndarray, new: Machine, fresh: np.ndarray, *, features: int, outputs: int
) -> np.ndarray:
    """What `old` knows of its first `features` and `outputs`, within `fresh`: a buffer of `new`, as large or larger.

    Features and classes that were never seen are independent of all that was learned, so the covariance of the larger
    parameter vector is the old one on the old entries and the prior's elsewhere.
    """
    if not (old.plan.full and new.plan.full):
        raise ValueError("features: beyond 2,000 parameters none can be added; give all in the first row, or hash them")
    values = _used(old.unpack_host(buffer), features, outputs)
    places = _used(new.unpack_host(np.arange(len(fresh))), features, outputs)
    result = fresh.copy()
    for place, value in zip(jax.tree.leaves(places), jax.tree.leaves(values), strict=True):
        result[place] = value
    return result


def _used(memory: Memory, features: int, outputs: int) -> Memory:
    """The entries that belong to the first features and outputs."""
    learner = memory.learner
    if isinstance(learner, BankState):  # all that is not a member's own is kept for each filter as a whole
        used = learner._replace(members=tuple(_used_state(own, features, outputs) for own in learner.members))
    else:
        used = _used_state(learner, features, outputs)
    return Memory(
        features=Running(*(leaf[:features] for leaf in memory.features)),
        target=memory.target,
        fading=memory.fading,
        learner=used,
    )


def _used_state(state: LearnerState, features: int, outputs: int) -> LearnerState:
    """Of one filter, or of several with a leading axis."""
    leading = state.curvature.cov.ndim - 2
    shapes = [leaf.shape[leading:] for leaf in jax.tree.leaves(state.params)]
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    numbered = jax.tree.unflatten(
        jax.tree.structure(state.params),
        [np.arange(end - math.prod(shape), end).reshape(shape) for shape, end in zip(shapes, ends, strict=True)],
    )
    kept = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(_used_params(numbered, features, outputs))])
    return state._replace(
        params=_used_params(state.params, features, outputs),
        curvature=state.curvature._replace(cov=state.curvature.cov[..., kept[:, None], kept]),
    )


def _used_params(params: Params, features: int, outputs: int) -> Params:
    layers = [dict(layer) for layer in params["network"]]
    layers[0]["weight"] = layers[0]["weight"][..., :features, :]
    layers[-1] = {"weight": layers[-1]["weight"][..., :outputs], "bias": layers[-1]["bias"][..., :outputs]}
    return {**params, "network": layers}
