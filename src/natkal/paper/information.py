"""Lemma 9: the information filter, which stores P^-1 and adds to it the Fisher matrix of each observation."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from natkal.families.base import Family
from natkal.paper.fisher import information
from natkal.paper.gradient import loss_gradient
from natkal.paper.kalman import (
    Mean,
    ProcessNoise,
    Transition,
    mean_jacobian,
    noise_cov,
    process_noise,
    stay,
    transition_jacobian,
)
from natkal.paper.solve import inverse, solve
from natkal.typing import Array, Float, Int


class InformationState(NamedTuple):
    """The same Gaussian as `KalmanState`, by its precision P_t^-1."""

    estimate: Float[Array, " p"]
    precision: Float[Array, "p p"]
    steps: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class InformationFilter:
    """Lemma 9: Def. 5 with P^-1 in the place of P. Static dynamics never invert it."""

    f: Transition
    h: Mean
    family: Family
    Q: ProcessNoise = None

    def init(self, s0: Float[Array, " p"], precision: Float[Array, "p p"]) -> InformationState:
        """The prior N(s_0, P_0), given P_0^-1."""
        return InformationState(estimate=s0, precision=precision, steps=jnp.zeros((), int))

    def transition(self, state: InformationState, u: Any) -> InformationState:
        """P_{t|t-1}^-1 = (F P_{t-1} F' + Q_t)^-1; for a static system (f = id, Q = 0) the state as it is."""
        if self.f is stay and self.Q is None:
            return state
        F = transition_jacobian(self.f, state.estimate, u)
        spread = F @ solve(state.precision, F.T)
        predicted = spread + process_noise(self.Q, state.steps + 1, state.precision)
        return InformationState(estimate=self.f(state.estimate, u), precision=inverse(predicted), steps=state.steps)

    def observe(self, state: InformationState, u: Any, y: Any) -> InformationState:
        """P_t^-1 = P_{t|t-1}^-1 + H' R^-1 H, then s_t = s_{t|t-1} - P_t (dl_t(y_t)/ds)'."""
        H = mean_jacobian(self.h, state.estimate, u)
        R = noise_cov(self.family, self.h(state.estimate, u))
        precision = state.precision + information(H, R)
        gradient = loss_gradient(self.h, self.family, state.estimate, u, y)
        return InformationState(
            estimate=state.estimate - solve(precision, gradient),
            precision=precision,
            steps=state.steps + 1,
        )

    def step(self, state: InformationState, u: Any, y: Any) -> InformationState:
        """Transition, then observation."""
        return self.observe(self.transition(state, u), u, y)
