"""Prop. 3: the fading-memory Kalman filter, which is the natural gradient at any learning rate."""

import dataclasses
from collections.abc import Callable
from typing import Any

from natkal.families.base import Family
from natkal.paper.kalman import ExtendedKalmanFilter, KalmanState, Mean, ProcessNoise, Transition, stay
from natkal.paper.schedules import Number, check_fadings
from natkal.typing import Array, Float


def fade(cov: Float[Array, "p p"], fading: Number) -> Float[Array, "p p"]:
    """P_{t-1} <- P_{t-1} / (1 - lambda_t), before the transition step."""
    return cov / (1 - fading)


@dataclasses.dataclass(frozen=True)
class FadingKalmanFilter:
    """A filter on the weighted log-likelihood L_t = ln p(y_t) + (1 - lambda_t) L_{t-1}   (Prop. 3).

    `fading` is lambda, a number or a function of t = 1, 2, ..; the dynamics are static unless `f` and `Q` differ.
    """

    h: Mean
    family: Family
    fading: Number | Callable[[Any], Any]
    f: Transition = stay
    Q: ProcessNoise = None

    def __post_init__(self) -> None:
        if not callable(self.fading):
            check_fadings("fading", self.fading)

    @property
    def kalman(self) -> ExtendedKalmanFilter:
        """Def. 5, without the fading."""
        return ExtendedKalmanFilter(self.f, self.h, self.family, self.Q)

    def init(self, s0: Float[Array, " p"], P0: Float[Array, "p p"]) -> KalmanState:
        """The prior N(s_0, P_0)."""
        return self.kalman.init(s0, P0)

    def step(self, state: KalmanState, u: Any, y: Any) -> KalmanState:
        """Fade, then the transition and the observation of Def. 5."""
        t = state.steps + 1
        fading = self.fading(t) if callable(self.fading) else self.fading
        faded = KalmanState(estimate=state.estimate, cov=fade(state.cov, fading), steps=state.steps)
        return self.kalman.step(faded, u, y)
