"""The step, once, and the loop around it."""

from natkal.engine.fisher import exact, outer_product, sampled
from natkal.engine.learner import KalmanLearner, online
from natkal.engine.plan import Plan, plan
from natkal.engine.prediction import FilterPrediction, Prediction
from natkal.engine.protocol import Learner
from natkal.engine.rates import fading, learning_rate
from natkal.engine.robust import robust
from natkal.engine.state import KalmanState, StepInfo
from natkal.engine.state_filter import StateFilter, state_filter
from natkal.engine.step_control import StepControl, step_control
from natkal.engine.switch import switch
from natkal.engine.unscented import unscented

__all__ = [
    "FilterPrediction",
    "KalmanLearner",
    "KalmanState",
    "Learner",
    "Plan",
    "Prediction",
    "StateFilter",
    "StepControl",
    "StepInfo",
    "exact",
    "fading",
    "learning_rate",
    "online",
    "outer_product",
    "plan",
    "robust",
    "sampled",
    "state_filter",
    "step_control",
    "switch",
    "unscented",
]
