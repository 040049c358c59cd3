"""How a learner is driven: over a stream, call by call, or many at once."""

from natkal.drivers.cache import compilation_cache
from natkal.drivers.fleet import Fleet, FleetState, fleet
from natkal.drivers.live import Live, live
from natkal.drivers.run import run

__all__ = ["Fleet", "FleetState", "Live", "compilation_cache", "fleet", "live", "run"]
