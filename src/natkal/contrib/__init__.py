"""Research: what may change or go with any release."""

from natkal.contrib.averaged import Averaged, averaged
from natkal.contrib.distance import Distance, distance
from natkal.contrib.ensemble import ensemble
from natkal.contrib.refine import refine

__all__ = ["Averaged", "Distance", "averaged", "distance", "ensemble", "refine"]
