"""What predicts."""

from natkal.models.base import Linearization, Model, ravel, ravel_rows
from natkal.models.networks import mlp_apply, mlp_params
from natkal.models.static import StaticModel, static_model

__all__ = ["Linearization", "Model", "StaticModel", "mlp_apply", "mlp_params", "ravel", "ravel_rows", "static_model"]
