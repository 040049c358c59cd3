"""The learner to start with: nothing to tune."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from natkal.banks.bank import Bank
from natkal.banks.group import Group
from natkal.banks.scaled import Scaled
from natkal.banks.units.standardise import Standardiser, all_real
from natkal.curvature import Curvature
from natkal.engine import Learner, online, plan, robust
from natkal.engine.plan import CANDIDATES
from natkal.engine.rates import fading
from natkal.families import Family, Gaussian
from natkal.laws import laws_for, marginal_for
from natkal.models import Model, fan_in_prior, infer_inputs
from natkal.typing import Params

SHARE = 1e-3
OUTLIER_DISTANCE = 4.0
"""Real targets further away, in usual deviations, count for less."""
SETTINGS = (
    (10.0, 1e-3), (3.0, 5e-3), (30.0, 0.0), (10.0, 5e-3), (3.0, 0.0), (10.0, 0.0),
    (3.0, 1e-3), (30.0, 1e-3), (1.0, 5e-3), (1.0, 1e-3), (30.0, 5e-3), (1.0, 0.0),
    (100.0, 0.0), (10.0, 2e-2), (0.3, 1e-3), (100.0, 1e-3), (0.3, 2e-2), (0.3, 5e-3),
)  # fmt: skip
"""Prior scale (times 1/fan-in) and fading of each member, the most useful first: `members` takes so many of them."""


def auto(
    model: Model,
    *,
    members: int | Sequence[tuple[float, float]] = 12,
    inputs: Any = None,
    memory: int | None = None,
    standardize: bool = True,
    curvature: Curvature | None = None,
    prior_cov: Params | None = None,
) -> Scaled | Bank:
    """A learner with nothing to tune: no rate, no decay, no prior scale, no noise variance.

    A bank of `members` filters that differ in prior scale and fading, mixed by likelihood: time grows with `members`,
    loss shrinks. In place of their number it may be the prior scale and the fading of each. Inputs, and targets of a
    Gaussian family, are standardised as they come; `standardize=False` is for a formula in units of its own. `inputs`
    is an example row of inputs, for its shape; without it the shape is found by trying those that the parameters
    suggest. The noise variance of a Gaussian, the dispersion of counts and the sharpness of class probabilities are
    learned. The curvature is the best one that fits `memory` bytes, what is free unless given. `prior_cov` replaces
    1/fan-in as the shape of the prior.

    >>> import jax, natkal as nk
    >>> params = nk.mlp_params(jax.random.key(0), (3, 8, 1))
    >>> learner = nk.auto(nk.static_model(nk.mlp_apply, params, nk.families.Bernoulli()), members=4)
    >>> learner.bank.size, learner.bank.experts  # each filter at five temperatures
    (4, 20)
    """
    settings = _settings(members)
    family = model.outputs
    inner = in_noise_units(model)
    if curvature is None:
        curvature = _choose(inner, memory, len(settings))
    outliers = robust(threshold=OUTLIER_DISTANCE, adaptive=True) if family.support == "real" else None
    group = filters(inner, curvature, settings, prior_cov, robust=outliers)
    bank = Bank(groups=(group,), laws=laws_for(family), share=SHARE, marginal=marginal_for(family))
    if not standardize:
        return bank
    example = infer_inputs(model) if inputs is None else inputs
    if example is None:
        raise ValueError(
            "inputs: the shape of a row cannot be told from the parameters; give an example row, inputs=..., "
            "or standardize=False"
        )
    units = Standardiser(example, family, scaled=all_real(example), spread=expected_spread(family))
    return Scaled(bank=bank, units=units)


def _settings(members: int | Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Prior scale and fading of each filter."""
    if not isinstance(members, int):
        if np.ndim(members) != 2 or np.shape(members)[1] != 2:
            raise ValueError("members: a number of filters, or a (prior scale, fading) for each of them")
        return members
    if not 1 <= members <= len(SETTINGS):
        raise ValueError(f"members: must lie in 1..{len(SETTINGS)} filters, got {members}")
    return SETTINGS[:members]


def filters(
    model: Model, curvature: Curvature, settings: Any, prior_cov: Params | None = None, **options: Any
) -> Group:
    """Filters of one model, one for each (prior scale, fading) of `settings`; `prior_cov` is 1/fan-in unless given."""
    shape = fan_in_prior(model.params) if prior_cov is None else prior_cov

    def make(value: dict[str, Any]) -> Learner:
        prior = jax.tree.map(lambda variance: variance * value["prior"], shape)
        return online(model, prior_cov=prior, rates=fading(value["fading"]), curvature=curvature, **options)

    numbers = np.asarray(settings, float)
    return Group(make=make, values={"prior": numbers[:, 0], "fading": numbers[:, 1]})


def in_noise_units(model: Model) -> Model:
    """The same model with unit noise variances where its family is Gaussian: the noise is learned beside the filters.

    A filter whose P is kept in units of the noise variance takes steps that do not depend on it.
    """
    family = model.outputs
    if not isinstance(family, Gaussian):
        return model
    if family.event_shape == ():
        return model.with_outputs(Gaussian(1.0))
    cov = np.asarray(family.noise_cov, float)
    deviations = np.sqrt(np.diagonal(cov))
    return model.with_outputs(Gaussian(cov / np.outer(deviations, deviations)))


def expected_spread(family: Family) -> Any:
    """The deviation of a target that the family expects; None where targets have no unit."""
    if isinstance(family, Gaussian):
        cov = np.asarray(family.noise_cov, float)
        return np.sqrt(np.diagonal(cov) if cov.ndim == 2 else cov)
    return 1.0 if family.support == "count" else None


def _choose(model: Model, memory: int | None, members: int) -> Curvature:
    """The planner's choice for one of so many filters."""
    planned = plan(model, memory=None if memory is None else memory // members)
    if memory is None:
        planned = plan(model, memory=planned.memory // members)
    if planned.recommended is None:
        raise ValueError(f"memory: no curvature fits {members} filters\n{planned}")
    return CANDIDATES[planned.recommended]
