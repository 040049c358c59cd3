"""The paper, line by line."""

from natkal.paper import dictionary
from natkal.paper.cases import Case, builtin_cases
from natkal.paper.claims import ClaimResult
from natkal.paper.dual import dual_kalman
from natkal.paper.joint import joint_kalman
from natkal.paper.kalman import ExtendedKalmanFilter
from natkal.paper.natural_gradient import natural_gradient
from natkal.paper.rtrl import natural_gradient_rtrl, rtrl
from natkal.paper.trajectory import trajectory_kalman
from natkal.paper.verify import verify

__all__ = [
    "Case",
    "ClaimResult",
    "ExtendedKalmanFilter",
    "builtin_cases",
    "dictionary",
    "dual_kalman",
    "joint_kalman",
    "natural_gradient",
    "natural_gradient_rtrl",
    "rtrl",
    "trajectory_kalman",
    "verify",
]
