"""How a learner is driven: over a stream, call by call, or many at once."""

from natkal.drivers.cache import compilation_cache
from natkal.drivers.distance import Distance, distance
from natkal.drivers.fleet import Fleet, FleetState, fleet
from natkal.drivers.live import Live, live
from natkal.drivers.off_policy import Estimate, OffPolicy, off_policy
from natkal.drivers.predict_many import predict_many
from natkal.drivers.refine import refine
from natkal.drivers.replay import DecisionLog, Replay, replay
from natkal.drivers.run import run
from natkal.drivers.storage import StorageError, load, save

__all__ = [
    "DecisionLog",
    "Distance",
    "Estimate",
    "Fleet",
    "FleetState",
    "Live",
    "OffPolicy",
    "Replay",
    "StorageError",
    "compilation_cache",
    "distance",
    "fleet",
    "live",
    "load",
    "off_policy",
    "predict_many",
    "refine",
    "replay",
    "run",
    "save",
]
