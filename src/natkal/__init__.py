"""natkal: learning from a stream, one observation at a time; online natural gradient as a Kalman filter.

Names are imported on first use, so that `import natkal` costs nothing and the command line answers without JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors and type checkers read; `_HOME` is what runs, and a test holds the two together
    from natkal import curvature as curvature
    from natkal import families as families
    from natkal import models as models
    from natkal import paper as paper
    from natkal import plot as plot
    from natkal.app.api import Run as Run
    from natkal.app.api import learn as learn
    from natkal.app.api import load_run as load_run
    from natkal.curvature import blocks as blocks
    from natkal.curvature import dense as dense
    from natkal.curvature import diagonal as diagonal
    from natkal.curvature import frozen as frozen
    from natkal.curvature import information as information
    from natkal.curvature import kronecker as kronecker
    from natkal.curvature import last_layer as last_layer
    from natkal.curvature import low_rank as low_rank
    from natkal.curvature import mixed as mixed
    from natkal.curvature import quasi_diagonal as quasi_diagonal
    from natkal.curvature import square_root as square_root
    from natkal.drivers import DecisionLog as DecisionLog
    from natkal.drivers import compilation_cache as compilation_cache
    from natkal.drivers import distance as distance
    from natkal.drivers import fleet as fleet
    from natkal.drivers import live as live
    from natkal.drivers import load as load
    from natkal.drivers import off_policy as off_policy
    from natkal.drivers import predict_many as predict_many
    from natkal.drivers import refine as refine
    from natkal.drivers import replay as replay
    from natkal.drivers import run as run
    from natkal.drivers import save as save
    from natkal.engine import Learner as Learner
    from natkal.engine import Prediction as Prediction
    from natkal.engine import StepInfo as StepInfo
    from natkal.engine import exact as exact
    from natkal.engine import fading as fading
    from natkal.engine import learning_rate as learning_rate
    from natkal.engine import online as online
    from natkal.engine import outer_product as outer_product
    from natkal.engine import plan as plan
    from natkal.engine import robust as robust
    from natkal.engine import sampled as sampled
    from natkal.engine import state_filter as state_filter
    from natkal.engine import step_control as step_control
    from natkal.engine import switch as switch
    from natkal.engine import unscented as unscented
    from natkal.integrations.ray_fleet import ray_fleet as ray_fleet
    from natkal.learners import auto as auto
    from natkal.learners import averaged as averaged
    from natkal.learners import bank as bank
    from natkal.learners import ensemble as ensemble
    from natkal.learners import monitor as monitor
    from natkal.learners.bandit import bandit as bandit
    from natkal.learners.bandit import epsilon_greedy as epsilon_greedy
    from natkal.learners.bandit import greedy as greedy
    from natkal.learners.bandit import thompson as thompson
    from natkal.learners.bandit import ucb as ucb
    from natkal.models import cells as cells
    from natkal.models import fan_in_prior as fan_in_prior
    from natkal.models import mlp_apply as mlp_apply
    from natkal.models import mlp_params as mlp_params
    from natkal.models import panel as panel
    from natkal.models import recurrent_model as recurrent_model
    from natkal.models import recurrent_network as recurrent_network
    from natkal.models import sensitivity as sensitivity
    from natkal.models import static_model as static_model
    from natkal.tabular.bandit import BanditOptions as BanditOptions
    from natkal.tabular.bandit import TableBandit as TableBandit

__version__ = "0.2.0"

_HOME = {
    "curvature": "natkal",
    "families": "natkal",
    "models": "natkal",
    "paper": "natkal",
    "plot": "natkal",
    "Run": "natkal.app.api",
    "learn": "natkal.app.api",
    "load_run": "natkal.app.api",
    "auto": "natkal.learners",
    "ray_fleet": "natkal.integrations.ray_fleet",
    "bandit": "natkal.learners.bandit",
    "bank": "natkal.learners",
    "DecisionLog": "natkal.drivers",
    "epsilon_greedy": "natkal.learners.bandit",
    "off_policy": "natkal.drivers",
    "replay": "natkal.drivers",
    "greedy": "natkal.learners.bandit",
    "thompson": "natkal.learners.bandit",
    "ucb": "natkal.learners.bandit",
    "BanditOptions": "natkal.tabular.bandit",
    "TableBandit": "natkal.tabular.bandit",
    "monitor": "natkal.learners",
    "blocks": "natkal.curvature",
    "dense": "natkal.curvature",
    "diagonal": "natkal.curvature",
    "frozen": "natkal.curvature",
    "information": "natkal.curvature",
    "kronecker": "natkal.curvature",
    "last_layer": "natkal.curvature",
    "low_rank": "natkal.curvature",
    "mixed": "natkal.curvature",
    "quasi_diagonal": "natkal.curvature",
    "square_root": "natkal.curvature",
    "Learner": "natkal.engine",
    "Prediction": "natkal.engine",
    "StepInfo": "natkal.engine",
    "averaged": "natkal.learners",
    "compilation_cache": "natkal.drivers",
    "distance": "natkal.drivers",
    "ensemble": "natkal.learners",
    "exact": "natkal.engine",
    "fading": "natkal.engine",
    "fleet": "natkal.drivers",
    "learning_rate": "natkal.engine",
    "live": "natkal.drivers",
    "online": "natkal.engine",
    "outer_product": "natkal.engine",
    "plan": "natkal.engine",
    "predict_many": "natkal.drivers",
    "refine": "natkal.drivers",
    "robust": "natkal.engine",
    "run": "natkal.drivers",
    "save": "natkal.drivers",
    "load": "natkal.drivers",
    "sampled": "natkal.engine",
    "state_filter": "natkal.engine",
    "step_control": "natkal.engine",
    "switch": "natkal.engine",
    "unscented": "natkal.engine",
    "mlp_apply": "natkal.models",
    "mlp_params": "natkal.models",
    "panel": "natkal.models",
    "static_model": "natkal.models",
    "recurrent_network": "natkal.models",
    "recurrent_model": "natkal.models",
    "cells": "natkal.models",
    "fan_in_prior": "natkal.models",
    "sensitivity": "natkal.models",
}

__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import a public name from its home the first time it is asked for, and keep it."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = import_module(f"natkal.{name}") if home == "natkal" else getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, imported yet or not."""
    return sorted({*globals(), *_HOME})
