"""What is known about the parameters."""

from natkal.curvature.base import Curvature, Prior, Response, Update
from natkal.curvature.dense import Dense, dense
from natkal.curvature.information import Information, information
from natkal.curvature.innovation import attenuated, correction
from natkal.curvature.square_root import SquareRoot, square_root

__all__ = [
    "Curvature",
    "Dense",
    "Information",
    "Prior",
    "Response",
    "SquareRoot",
    "Update",
    "attenuated",
    "correction",
    "dense",
    "information",
    "square_root",
]
