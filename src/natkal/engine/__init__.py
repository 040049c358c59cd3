"""The step, once, and the loop around it."""

from natkal.engine.averaging import Averaged, averaged
from natkal.engine.cache import compilation_cache
from natkal.engine.control import StepControl, step_control
from natkal.engine.distance import Distance, distance
from natkal.engine.ensemble import Ensemble, ensemble
from natkal.engine.fisher import exact, outer_product, sampled
from natkal.engine.fleet import Fleet, FleetState, fleet
from natkal.engine.learner import Learner, online
from natkal.engine.live import Live, live
from natkal.engine.plan import Plan, plan
from natkal.engine.rates import fading, learning_rate
from natkal.engine.refine import refine
from natkal.engine.robust import robust
from natkal.engine.run import run
from natkal.engine.state import LearnerState, Prediction, StepInfo
from natkal.engine.state_filter import StateFilter, state_filter
from natkal.engine.switch import switch
from natkal.engine.unscented import unscented

__all__ = [
    "Averaged",
    "Distance",
    "Ensemble",
    "Fleet",
    "FleetState",
    "Learner",
    "LearnerState",
    "Live",
    "Plan",
    "Prediction",
    "StateFilter",
    "StepControl",
    "StepInfo",
    "averaged",
    "compilation_cache",
    "distance",
    "ensemble",
    "exact",
    "fading",
    "fleet",
    "learning_rate",
    "live",
    "online",
    "outer_product",
    "plan",
    "refine",
    "robust",
    "run",
    "sampled",
    "state_filter",
    "step_control",
    "switch",
    "unscented",
]
