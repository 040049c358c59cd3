"""Prop. 4: forgetting that keeps the prior at constant weight, as a Kalman filter and as a natural gradient."""

import dataclasses
from typing import Any

import jax.numpy as jnp

from natkal.families.base import Family
from natkal.paper.gradient import loss_gradient
from natkal.paper.kalman import KalmanState, Mean, error, gain, mean_jacobian, noise_cov, posterior_cov
from natkal.paper.natural_gradient import NaturalGradientState, natural_gradient, update_fisher, update_params
from natkal.paper.schedules import Number, Schedule
from natkal.paper.solve import inverse, solve
from natkal.typing import Array, Float


def with_equal_start(learning_rate: Schedule) -> Schedule:
    """The schedule of Prop. 4, where eta_0 := eta_1."""
    return lambda t: learning_rate(jnp.maximum(t, 1))


def fading_at(learning_rate: Schedule, t: Any) -> Any:
    """lambda_t, from 1 - lambda_t = eta_{t-1}/eta_t - eta_{t-1}   (Prop. 4, with eta_0 := eta_1)."""
    eta = with_equal_start(learning_rate)
    return 1 - (eta(t - 1) / eta(t) - eta(t - 1))


def initial_cov(prior_cov: Float[Array, "p p"], eta_1: Number, prior_weight: Number) -> Float[Array, "p p"]:
    """P_0 = eta_1 / (1 + n_prior eta_1) Sigma_0   (Prop. 4)."""
    return eta_1 / (1 + prior_weight * eta_1) * prior_cov


def weight_decay(
    params: Float[Array, " p"],
    prior_params: Float[Array, " p"],
    prior_precision: Float[Array, "p p"],
    weight: Number,
) -> Float[Array, " p"]:
    """lambda_t n_prior Sigma_0^-1 (theta - theta_prior): Prop. 4's extra gradient; `weight` is lambda_t n_prior."""
    return weight * prior_precision @ (params - prior_params)


@dataclasses.dataclass(frozen=True)
class PriorKeepingFilter:
    """The modified fading filter of Prop. 4, on L_t + n_prior ln pi with pi = N(theta_prior, Sigma_0).

    Its proof writes Lbar_t = ln p(y_t) + (1 - lambda_t) Lbar_{t-1} + lambda_t n_prior ln pi: fade, add lambda_t n_prior
    of the prior, observe. The observation is linearised at s_{t-1}, where the natural gradient takes its gradient.
    """

    h: Mean
    family: Family
    learning_rate: Schedule
    prior_params: Float[Array, " p"]
    prior_cov: Float[Array, "p p"]
    prior_weight: Number = 1.0

    def init(self) -> KalmanState:
        """theta_prior and P_0 = eta_1 / (1 + n_prior eta_1) Sigma_0."""
        cov = initial_cov(self.prior_cov, self.learning_rate(1), self.prior_weight)
        return KalmanState(estimate=self.prior_params, cov=cov, steps=jnp.zeros((), int))

    def renew(self, state: KalmanState) -> KalmanState:
        """The maximum and the inverse Hessian of (1 - lambda_t) Lbar_{t-1} + lambda_t n_prior ln pi."""
        fading = fading_at(self.learning_rate, state.steps + 1)
        kept, renewed = (1 - fading) * inverse(state.cov), fading * self.prior_weight * inverse(self.prior_cov)
        precision = kept + renewed
        return KalmanState(
            estimate=solve(precision, kept @ state.estimate + renewed @ self.prior_params),
            cov=inverse(precision),
            steps=state.steps,
        )

    def step(self, state: KalmanState, u: Any, y: Any) -> KalmanState:
        """Renew the prior, then the observation step of Def. 5 on h linearised at s_{t-1}."""
        renewed = self.renew(state)
        mean = self.h(state.estimate, u)
        R = noise_cov(self.family, mean)
        H = mean_jacobian(self.h, state.estimate, u)
        E = error(self.family, mean + H @ (renewed.estimate - state.estimate), y)
        K = gain(renewed.cov, H, R)
        return KalmanState(
            estimate=renewed.estimate + K @ E, cov=posterior_cov(renewed.cov, K, H), steps=state.steps + 1
        )


@dataclasses.dataclass(frozen=True)
class RegularizedNaturalGradient:
    """The regularised natural gradient of Prop. 4: Def. 1 with weight decay and Tikhonov terms at the paper's rates."""

    h: Mean
    family: Family
    learning_rate: Schedule
    prior_params: Float[Array, " p"]
    prior_cov: Float[Array, "p p"]
    prior_weight: Number = 1.0

    def init(self) -> NaturalGradientState:
        """theta_prior and J_0 = Sigma_0^-1."""
        learner = natural_gradient(self.h, self.family, self.learning_rate)
        return learner.init(self.prior_params, inverse(self.prior_cov))

    def step(self, state: NaturalGradientState, u: Any, y: Any) -> NaturalGradientState:
        """theta <- theta - eta (J + eta n Sigma_0^-1)^-1 ((dl/dtheta)' + lambda n Sigma_0^-1 (theta - theta_prior))."""
        t = state.steps + 1
        eta, fading = self.learning_rate(t), fading_at(self.learning_rate, t)
        prior_precision = inverse(self.prior_cov)
        learner = natural_gradient(self.h, self.family, self.learning_rate)
        estimate = learner.fisher(self.h, self.family, state.params, u, y, state.key)
        fisher = update_fisher(state.fisher, estimate, eta)
        gradient = loss_gradient(self.h, self.family, state.params, u, y)
        decay = weight_decay(state.params, self.prior_params, prior_precision, fading * self.prior_weight)
        regularized = fisher + eta * self.prior_weight * prior_precision
        params = update_params(state.params, regularized, gradient + decay, eta)
        return NaturalGradientState(params=params, fisher=fisher, steps=t, key=state.key)

    def cov(self, state: NaturalGradientState) -> Float[Array, "p p"]:
        """The Kalman image of J_t: P_t = eta_t (J_t + eta_t n_prior Sigma_0^-1)^-1."""
        eta = with_equal_start(self.learning_rate)(state.steps)
        return eta * inverse(state.fisher + eta * self.prior_weight * inverse(self.prior_cov))
