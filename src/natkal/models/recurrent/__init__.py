"""Models with a state, and what they carry of its dependence on the parameters."""

from natkal.models.recurrent import cells, sensitivity
from natkal.models.recurrent.model import RecurrentCarry, RecurrentModel, recurrent_model, recurrent_network

__all__ = ["RecurrentCarry", "RecurrentModel", "cells", "recurrent_model", "recurrent_network", "sensitivity"]
