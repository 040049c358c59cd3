"""Models with a state, and what they carry of its dependence on the parameters."""

from natkal.models.recurrent import cells
from natkal.models.recurrent.model import RecurrentCarry, RecurrentModel, recurrent_model, recurrent_network
from natkal.models.recurrent.random_rank import kronecker_rtrl, nobacktrack, uoro
from natkal.models.recurrent.sensitivity import Sensitivity, immediate, rtrl
from natkal.models.recurrent.windowed import snap, truncated

__all__ = [
    "RecurrentCarry",
    "RecurrentModel",
    "Sensitivity",
    "cells",
    "immediate",
    "kronecker_rtrl",
    "nobacktrack",
    "recurrent_model",
    "recurrent_network",
    "rtrl",
    "snap",
    "truncated",
    "uoro",
]
