"""Ready cells: each weight feeds one unit, and the cell says which; what sensitivities exploit."""

from natkal.models.recurrent.cells.base import Cell, readout_params
from natkal.models.recurrent.cells.layered import stack
from natkal.models.recurrent.cells.matrix import gru, leaky, linear, lstm, tanh
from natkal.models.recurrent.cells.per_unit import diagonal, lru, rtu

__all__ = ["Cell", "diagonal", "gru", "leaky", "linear", "lru", "lstm", "readout_params", "rtu", "stack", "tanh"]
