"""Predictive laws built from one prediction: the same filter at several temperatures, dispersions or noise levels."""

import math

import jax.numpy as jnp
import numpy as np

from natkal.engine.distributions import count_cdf, gamma_cdf
from natkal.families import (
    Bernoulli,
    Binomial,
    Categorical,
    Family,
    Gamma,
    Gaussian,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Weighted,
)
from natkal.laws.base import Laws, Moments
from natkal.laws.counted import Counted
from natkal.laws.dispersed import SameMean
from natkal.laws.marginal import Frequencies, HeavyTailed, Marginal, RunningStudent
from natkal.laws.plug_in import OwnPrediction, PlugIn
from natkal.laws.student import Student
from natkal.laws.tempered import Tempered

__all__ = [
    "Counted",
    "Laws",
    "Marginal",
    "Moments",
    "OwnPrediction",
    "PlugIn",
    "SameMean",
    "Student",
    "Tempered",
    "laws_for",
    "laws_of_rewards",
    "marginal_for",
]

TEMPERATURES = (0.5, 0.7, 1.0, 1.4, 2.0)
DISPERSIONS = (0.3, 1.0, 3.0, 10.0, math.inf)
SHARPNESSES = (0.25, 0.5, 1.0, 2.0, 4.0)
NOISE_MEMORIES = (50.0, 2000.0)
HEAVY_MEMORIES = (2000.0,)
QUICK_MEMORIES = (3.0, 6.0, 15.0)
NOISE_WIDTHS = (0.7, 1.0)
TRACKING_RATES = (0.0, 0.1, 0.5)
REWARD_MEMORY = 1000.0
"""Rewards that their noise is learned from."""


def laws_for(family: Family) -> Laws:
    """The predictive laws that suit a family."""
    match family:
        case Weighted():
            return Counted(laws_for(family.family))
        case Bernoulli() | Categorical() | Binomial() | Multinomial():
            return Tempered(family, TEMPERATURES)
        case Gaussian():
            return Student(NOISE_MEMORIES, NOISE_WIDTHS, TRACKING_RATES, family.dim, HEAVY_MEMORIES, QUICK_MEMORIES)
        case Poisson() | NegativeBinomial():
            return SameMean(NegativeBinomial, Poisson(), DISPERSIONS, count_cdf, least=lambda mean: mean + 1)
        case Gamma():
            shapes = tuple(float(np.asarray(family.shape)) * sharpness for sharpness in SHARPNESSES)
            return SameMean(Gamma, None, shapes, gamma_cdf, least=jnp.square)
        case _:
            return PlugIn(family)


def marginal_for(family: Family) -> Marginal | None:
    """The law of a target by its own past alone; None where there is none for this family."""
    match family.unweighted:
        case Bernoulli() | Categorical() | Binomial() | Multinomial():
            return Frequencies(family.unweighted)
        case Gaussian():
            return RunningStudent(family.unweighted.dim)
        case Poisson() | NegativeBinomial():
            return HeavyTailed(whole=True)
        case Gamma():
            return HeavyTailed(whole=False)
        case _:
            return None


def laws_of_rewards(family: Family) -> Laws:
    """The same for what arms pay: of normal rewards one law alone, in which the noise has a long memory.

    What is not known of an arm is in units of the noise. A noise that follows the last rewards falls while decisions
    are easy, and the posterior with it; a level that follows the residuals would mix those of all arms.
    """
    match family:
        case Gaussian():
            return Student((REWARD_MEMORY,), (1.0,), entries=family.dim)
        case _:
            return laws_for(family)
