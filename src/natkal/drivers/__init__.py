"""How a learner is driven: over a stream, call by call, or many at once."""

from natkal.drivers.cache import compilation_cache
from natkal.drivers.distance import Distance, distance
from natkal.drivers.fleet import Fleet, FleetState, fleet
from natkal.drivers.live import Live, live
from natkal.drivers.predict_many import predict_many
from natkal.drivers.refine import refine
from natkal.drivers.run import run
from natkal.drivers.storage import StorageError, load, save

__all__ = [
    "Distance",
    "Fleet",
    "FleetState",
    "Live",
    "StorageError",
    "compilation_cache",
    "distance",
    "fleet",
    "live",
    "load",
    "predict_many",
    "refine",
    "run",
    "save",
]
