"""The one seam that everything above the engine stands on: a learner is pure functions on a pytree state."""

from typing import Any, Protocol, TypeVar, runtime_checkable

from natkal.engine.prediction import Prediction
from natkal.engine.state import StepInfo
from natkal.models import Feed
from natkal.typing import Array, Params

Info_co = TypeVar("Info_co", covariant=True)


@runtime_checkable
class Stepping(Protocol[Info_co]):
    """A learner by the type of the information about a step, so that `nk.run` returns it typed."""

    def step(self, state: Any, inputs: Any, target: Any) -> tuple[Any, Info_co]:
        """The state after one observation, and what is told about it."""
        ...


@runtime_checkable
class Learner(Protocol):
    """A filter, a bank, `auto`, an averaged learner, or one of your own.

    Every method is a pure function that works inside `jit`, `vmap` and `scan`. The state has the same structure from
    `init` on. Checks of shapes and values are made by the drivers (`nk.run`, `nk.live`), not here.

    A learner may also have `outputs`, the family of its observations: the drivers then check targets against it.
    """

    def init(self, params: Params | None = None, key: Array | None = None) -> Any:
        """The state before any observation, centred on `params` (the model's own unless given)."""
        ...

    def predict(self, state: Any, inputs: Any) -> Prediction:
        """The predictive law of the next y for these inputs; learns nothing."""
        ...

    def step(self, state: Any, inputs: Any, target: Any) -> tuple[Any, Any]:
        """The state after one observation, and a `StepInfo` (or more) about it. A NaN target is only predicted."""
        ...

    def restart(self, state: Any) -> Any:
        """The state at the start of a new sequence: a model's memory starts again, what was learned stays."""
        ...

    def forecast(self, state: Any, inputs: Any, horizon: int, feed: Feed | None = None) -> Prediction:
        """The next `horizon` observations as one stacked prediction; learns nothing."""
        ...

    def sample(self, state: Any, key: Array) -> Params:
        """Parameters drawn from the posterior."""
        ...

    def covariance(self, state: Any) -> Array:
        """The posterior covariance of the flat parameters, in full."""
        ...


__all__ = ["Feed", "Info_co", "Learner", "Prediction", "StepInfo", "Stepping"]
