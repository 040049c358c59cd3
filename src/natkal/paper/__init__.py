"""The paper, line by line: its static half."""

from natkal.paper import dictionary
from natkal.paper.cases import Case, builtin_cases
from natkal.paper.claims import ClaimResult
from natkal.paper.kalman import ExtendedKalmanFilter
from natkal.paper.natural_gradient import natural_gradient
from natkal.paper.verify import verify

__all__ = [
    "Case",
    "ClaimResult",
    "ExtendedKalmanFilter",
    "builtin_cases",
    "dictionary",
    "natural_gradient",
    "verify",
]
