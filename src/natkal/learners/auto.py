"""The learner to start with: nothing to tune."""

import dataclasses
from typing import Any

import jax
import numpy as np

from natkal.curvature import Curvature
from natkal.engine import Learner, online, plan
from natkal.engine.plan import CANDIDATES
from natkal.engine.rates import fading
from natkal.families import Family, Gaussian
from natkal.learners.bank import Bank
from natkal.learners.members import Group
from natkal.learners.predictive import voices_for
from natkal.learners.scaled import Standardized
from natkal.models import Model
from natkal.models.fan_in import fan_in
from natkal.typing import Params

SHARE = 1e-3
SETTINGS = (
    (10.0, 1e-3), (3.0, 5e-3), (30.0, 0.0), (10.0, 5e-3), (3.0, 0.0), (10.0, 0.0),
    (3.0, 1e-3), (30.0, 1e-3), (1.0, 5e-3), (1.0, 1e-3), (30.0, 5e-3), (1.0, 0.0),
    (100.0, 0.0), (10.0, 2e-2), (0.3, 1e-3), (100.0, 1e-3), (0.3, 2e-2), (0.3, 5e-3),
)  # fmt: skip
"""Prior scale (times 1/fan-in) and fading of each member, the most useful first: `budget` takes so many of them."""


def auto(
    model: Model,
    *,
    budget: int = 12,
    memory: int | None = None,
    standardize: bool = True,
    curvature: Curvature | None = None,
    prior_cov: Params | None = None,
) -> Standardized:
    """A learner with nothing to tune: no rate, no decay, no prior scale, no noise variance.

    A bank of `budget` filters that differ in prior scale and fading, mixed by likelihood: time grows with `budget`,
    loss shrinks. Inputs, and targets of a Gaussian family, are standardised as they come; `standardize=False` is for a
    formula in units of its own. The noise variance of a Gaussian, the dispersion of counts and the sharpness of class
    probabilities are learned. The curvature is the best one that fits `memory` bytes, what is free unless given.
    `prior_cov` replaces 1/fan-in as the shape of the prior.

    >>> import jax, natkal as nk
    >>> params = nk.mlp_params(jax.random.key(0), (3, 8, 1))
    >>> learner = nk.auto(nk.static_model(nk.mlp_apply, params, nk.families.Bernoulli()), budget=4)
    >>> learner.bank.size, learner.bank.experts  # each filter speaks at five temperatures
    (4, 20)
    """
    if not 1 <= budget <= len(SETTINGS):
        raise ValueError(f"budget: must lie in 1..{len(SETTINGS)} filters, got {budget}")
    family, inner, noise_cov = model.outputs, model, None
    if isinstance(family, Gaussian):
        inner = _with_family(model, _in_noise_units(family))
        noise_cov = family.noise_cov if standardize else None
    if curvature is None:
        curvature = _choose(inner, memory, budget)
    shape = _shape(model.params) if prior_cov is None else prior_cov

    def make(value: dict[str, Any]) -> Learner:
        prior = jax.tree.map(lambda variance: variance * value["prior"], shape)
        return online(inner, prior_cov=prior, rates=fading(value["fading"]), curvature=curvature)

    settings = np.asarray(SETTINGS[:budget])
    values = {"prior": settings[:, 0], "fading": settings[:, 1]}
    bank = Bank(groups=(Group(make=make, values=values),), voices=voices_for(family), share=SHARE)
    return Standardized(model=model, bank=bank, scale_inputs=standardize, noise_cov=noise_cov)


def _shape(params: Params) -> Params:
    """1/fan-in for weights; 1 for biases, which count as much as all the weights of their unit together."""
    return jax.tree.map(
        lambda leaf, size: np.full(np.shape(leaf), 1 / size if np.ndim(leaf) > 1 else 1.0), params, fan_in(params)
    )


def _choose(model: Model, memory: int | None, budget: int) -> Curvature:
    """The planner's choice for one of `budget` filters."""
    planned = plan(model, memory=None if memory is None else memory // budget)
    if memory is None:
        planned = plan(model, memory=planned.memory // budget)
    if planned.recommended is None:
        raise ValueError(f"memory: no curvature fits {budget} filters\n{planned}")
    return CANDIDATES[planned.recommended]


def _in_noise_units(family: Gaussian) -> Family:
    """The same correlations, unit variances."""
    if family.event_shape == ():
        return Gaussian(1.0)
    cov = np.asarray(family.noise_cov, float)
    deviations = np.sqrt(np.diagonal(cov))
    return Gaussian(cov / np.outer(deviations, deviations))


def _with_family(model: Any, family: Family) -> Model:
    """The same network under another law of the same outputs."""
    return dataclasses.replace(model, family=family, outputs=family)
