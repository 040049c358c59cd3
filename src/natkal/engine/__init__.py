"""The step, once, and the loop around it."""

from natkal.engine.control import StepControl, step_control
from natkal.engine.fisher import exact, outer_product, sampled
from natkal.engine.learner import Learner, online
from natkal.engine.rates import fading, learning_rate
from natkal.engine.refine import refine
from natkal.engine.robust import robust
from natkal.engine.run import run
from natkal.engine.state import LearnerState, Prediction, StepInfo
from natkal.engine.state_filter import StateFilter, state_filter
from natkal.engine.switch import switch

__all__ = [
    "Learner",
    "LearnerState",
    "Prediction",
    "StateFilter",
    "StepControl",
    "StepInfo",
    "exact",
    "fading",
    "learning_rate",
    "online",
    "outer_product",
    "refine",
    "robust",
    "run",
    "sampled",
    "state_filter",
    "step_control",
    "switch",
]
