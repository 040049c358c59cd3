"""How a learner is driven: over a stream, or call by call."""

from natkal.stream.live import Live, live
from natkal.stream.predict_many import predict_many
from natkal.stream.run import run

__all__ = ["Live", "live", "predict_many", "run"]
