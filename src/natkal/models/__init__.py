"""What predicts."""

from natkal.models.base import Feed, Linearization, Model, Rollout, ravel, ravel_rows
from natkal.models.fan_in import fan_in_prior
from natkal.models.inputs import infer_inputs
from natkal.models.networks import mlp_apply, mlp_params
from natkal.models.panel import panel
from natkal.models.recurrent import RecurrentModel, cells, recurrent_model, recurrent_network, sensitivity
from natkal.models.static import StaticModel, static_model
from natkal.rows import FactoredRows, Outer, Rows, dense_rows

__all__ = [
    "FactoredRows",
    "Feed",
    "Linearization",
    "Model",
    "Outer",
    "RecurrentModel",
    "Rollout",
    "Rows",
    "StaticModel",
    "cells",
    "dense_rows",
    "fan_in_prior",
    "infer_inputs",
    "mlp_apply",
    "mlp_params",
    "panel",
    "ravel",
    "ravel_rows",
    "recurrent_model",
    "recurrent_network",
    "sensitivity",
    "static_model",
]
