"""What is known about the parameters."""

from natkal.curvature.base import Curvature, Prior, Response, Update
from natkal.curvature.dense import Dense, dense
from natkal.curvature.innovation import correction

__all__ = ["Curvature", "Dense", "Prior", "Response", "Update", "correction", "dense"]
