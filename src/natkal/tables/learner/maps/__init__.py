"""What a linear filter sees of a row; see this folder's README."""

from natkal.tables.learner.maps.base import Map
from natkal.tables.learner.maps.columns import COLUMNS, Columns
from natkal.tables.learner.maps.cosines import Cosines
from natkal.tables.learner.maps.products import Products

__all__ = ["COLUMNS", "Columns", "Cosines", "Map", "Products"]
