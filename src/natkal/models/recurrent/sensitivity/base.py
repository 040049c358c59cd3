"""The seam of G = d s / d theta: how a sensitivity is carried along, and what a model asks of it."""

import abc
from typing import Any, ClassVar

from natkal.models.recurrent.system import Local, System
from natkal.typing import Array, Float


class Sensitivity(abc.ABC):
    """How the derivative of the state with respect to the parameters is carried along; see this folder's README.

    `full` is true where all of G is kept as one matrix: only then may G start from a matrix, and be conditioned.
    """

    full: ClassVar[bool] = False

    @abc.abstractmethod
    def init(self, system: System, start: Float[Array, "n p"] | None) -> Any:
        """G_0: `start`, or zero where None."""

    @abc.abstractmethod
    def advance(self, system: System, state: Any, local: Local) -> Any:
        """G <- d cell / d theta + d cell / d s G   (Def. 11), or an estimate of it."""

    @abc.abstractmethod
    def rows(self, system: System, state: Any, covectors: Float[Array, "m n"]) -> Float[Array, "m p"]:
        """Covectors @ G."""

    @abc.abstractmethod
    def push(self, system: System, state: Any, step: Float[Array, " p"]) -> Float[Array, " n"]:
        """G @ step."""

    def condition(self, state: Any, left: Float[Array, "n r"], right: Float[Array, "r p"]) -> Any:
        """G - left @ right: what an observation of an uncertain state does to G (Lemma 14)."""
        raise ValueError("state_cov: an uncertain state changes all of d s / d theta; it needs sensitivity=rtrl()")


def no_start(name: str, start: Array | None) -> None:
    """Refuse an initial state that depends on the parameters, which only the full G can start from."""
    if start is not None:
        raise ValueError(f"state: a function of the parameters needs sensitivity=rtrl(), got {name}()")
