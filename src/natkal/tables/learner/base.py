"""What a row is to a model, and what an architecture is.

An architecture has `name`, `params(seed, shape, outputs)`, `model(params, family, value)`, `curvature(size)`,
`prior(params, shape)` and `learner(filter, value)`. `value` has the numbers in which the members of a group differ:
`mask` says which inputs a member sees.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from natkal.engine import KalmanLearner
from natkal.models import fan_in_prior
from natkal.typing import Params

DENSE_UP_TO = 400
"""Parameters of a linear model that get a full covariance; a larger one, and every network, a structured one."""


class Inputs(NamedTuple):
    """One row: its numbers, and how many classes are known by now (0 for numbers).

    A model sees in the place of `known` what is added to each of its outputs (banks/units/late_classes.py).
    """

    features: Any
    known: Any


@dataclasses.dataclass(frozen=True)
class Shape:
    """The numbers of a row: how many there is room for, which are plain numbers to be scaled, and which are past.

    `fan_in` is the number of inputs that the priors of the first weights are divided by. `past` is how many of the
    inputs, the first ones, are earlier targets, `later_past` are the places of those that came later, and `naive` the
    weights of a naive forecast from them (none where there is no such forecast). `series`: rows in their order, with a
    date or names at most beside the target. `alone`: the table began with its target only; it has no members without
    the past, whatever columns come later.
    """

    columns: int
    scaled: tuple[bool, ...]
    past: int
    fan_in: int
    naive: tuple[float, ...] = ()
    series: bool = False
    alone: bool = False
    later_past: tuple[int, ...] = ()

    @property
    def is_past(self) -> np.ndarray:
        """For each input, whether it is made of earlier targets."""
        found = np.arange(self.columns) < self.past
        found[list(self.later_past)] = True
        return found


class Architecture:
    """Defaults of an architecture: prior variances 1/fan-in, and the filter itself as the learner."""

    def prior(self, params: Params, shape: Shape) -> Params:
        """The shape of the prior's variances."""
        return fan_in_prior(params)

    def learner(self, inner: KalmanLearner, value: Mapping[str, Any]) -> Any:
        """The learner that is made of this filter."""
        return inner
