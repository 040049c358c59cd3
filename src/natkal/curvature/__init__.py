"""What is known about the parameters."""

from natkal.curvature.base import Curvature, Prior, Response, Update
from natkal.curvature.dense import Dense, dense

__all__ = ["Curvature", "Dense", "Prior", "Response", "Update", "dense"]
