"""The step, once, and the loop around it."""

from natkal.engine.fisher import exact, outer_product, sampled
from natkal.engine.learner import Learner, LearnerState, Prediction, StepInfo, online
from natkal.engine.rates import fading, learning_rate
from natkal.engine.refine import refine
from natkal.engine.run import run

__all__ = [
    "Learner",
    "LearnerState",
    "Prediction",
    "StepInfo",
    "exact",
    "fading",
    "learning_rate",
    "online",
    "outer_product",
    "refine",
    "run",
    "sampled",
]
