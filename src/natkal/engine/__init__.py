"""The step, once, and the loop around it."""

from natkal.engine.distance import Distance, distance
from natkal.engine.fisher import exact, outer_product, sampled
from natkal.engine.learner import Learner, online
from natkal.engine.plan import Plan, plan
from natkal.engine.rates import fading, learning_rate
from natkal.engine.refine import refine
from natkal.engine.robust import robust
from natkal.engine.state import LearnerState, Prediction, StepInfo
from natkal.engine.state_filter import StateFilter, state_filter
from natkal.engine.step_control import StepControl, step_control
from natkal.engine.switch import switch
from natkal.engine.unscented import unscented

__all__ = [
    "Distance",
    "Learner",
    "LearnerState",
    "Plan",
    "Prediction",
    "StateFilter",
    "StepControl",
    "StepInfo",
    "distance",
    "exact",
    "fading",
    "learning_rate",
    "online",
    "outer_product",
    "plan",
    "refine",
    "robust",
    "sampled",
    "state_filter",
    "step_control",
    "switch",
    "unscented",
]
