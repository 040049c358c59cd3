"""An ensemble: copies of one learner that start from draws of its prior, as a bank."""

import numpy as np

from natkal.banks.bank import Bank
from natkal.banks.group import Group
from natkal.engine import KalmanLearner
from natkal.laws import PlugIn


def ensemble(learner: KalmanLearner, members: int, *, weighted: bool = False, spread: float = 1.0) -> Bank:
    """`members` copies of a filter, each from its own draw of the prior (times `spread`), as one bank.

    Predictions mix the members equally, or, `weighted`, by their likelihood so far (Gaussian particles: a mixture of
    filters). `init(params, key)` draws.
    """
    if members < 1:
        raise ValueError(f"members: must be at least 1, got {members}")
    group = Group(make=lambda value: learner, values=np.zeros(members))
    # a share of 1 deals all of the weight out evenly at each step
    return Bank(groups=(group,), laws=PlugIn(learner.outputs), share=0.0 if weighted else 1.0, scatter=spread)
