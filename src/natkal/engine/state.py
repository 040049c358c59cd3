"""What a filter knows, and what an observation told it."""

from typing import Any, NamedTuple

import jax
import numpy as np

from natkal.engine.counter import Counter
from natkal.engine.robust import Outliers
from natkal.typing import Array, Bool, Float, Params


class KalmanState(NamedTuple):
    """All that a filter knows.

    `steps` counts the observations learned from, `outliers` what a robust learner knows of outliers.
    `prior_params` is the prior's centre where the prior is kept, None elsewhere.
    """

    params: Params
    curvature: Any
    carry: Any
    steps: Counter
    outliers: Outliers
    key: Array
    prior_params: Params | None

    def __repr__(self) -> str:
        steps = int(self.steps) if np.ndim(self.steps.low) == 0 else np.shape(self.steps.low)
        return f"KalmanState(steps={steps}, params={short(self.params)}, curvature={short(self.curvature)})"


class StepInfo(NamedTuple):
    """What one observation told.

    `log_prob` is that of y before learning from it (of its observed part; 0 where all of y is missing). `observed`:
    some of y was there. `accepted`: the step was finite and was taken; a step that was not leaves the state as it was.
    `weight` is what the observation counted for, 1 unless a robust learner took it for an outlier. `keep` is the share
    of the earlier evidence that was kept, 1 - lambda. `reached`: the output depended on every array of the parameters;
    where it does not for many rows, units are dead and the model has stopped learning.
    """

    log_prob: Float[Array, ""]
    prediction: Any
    observed: Bool[Array, ""] | bool = True
    accepted: Bool[Array, ""] | bool = True
    weight: Float[Array, ""] | float = 1.0
    keep: Float[Array, ""] | float = 1.0
    reached: Bool[Array, ""] | bool = True


def short(tree: Any) -> str:
    """A pytree in a few words: how many numbers, in how many arrays."""
    leaves = jax.tree.leaves(tree)
    return f"<{sum(int(np.size(leaf)) for leaf in leaves):,} numbers in {len(leaves)} arrays>"
