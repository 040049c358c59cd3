"""How G = d s / d theta is carried along: exactly, without the far past, at random, or unit by unit."""

from natkal.models.recurrent.sensitivity.base import Sensitivity
from natkal.models.recurrent.sensitivity.exact import immediate, rtrl
from natkal.models.recurrent.sensitivity.layerwise import layerwise
from natkal.models.recurrent.sensitivity.random_rank import kronecker_rtrl, nobacktrack, uoro
from natkal.models.recurrent.sensitivity.traces import diagonal
from natkal.models.recurrent.sensitivity.windowed import snap, truncated

__all__ = [
    "Sensitivity",
    "diagonal",
    "immediate",
    "kronecker_rtrl",
    "layerwise",
    "nobacktrack",
    "rtrl",
    "snap",
    "truncated",
    "uoro",
]
