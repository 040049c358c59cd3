"""Def. 1: the online natural gradient, with the Fisher matrix exact, sampled, or from the observation itself."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.families.base import Family
from natkal.paper.fisher import fisher_of_params
from natkal.paper.gradient import loss_gradient
from natkal.paper.kalman import Mean
from natkal.paper.schedules import Number, Rate, as_schedule
from natkal.paper.solve import solve
from natkal.typing import Array, Float, Int

FisherEstimate = Callable[[Mean, Family, Float[Array, " p"], Any, Any, Array], Float[Array, "p p"]]
"""`estimate(h, family, params, u, y, key)`: the expectation in eq. natgradJ, or a stand-in for it."""


class NaturalGradientState(NamedTuple):
    """theta_t, the Fisher matrix J_t, t, and the key from which Monte Carlo estimates draw at each t."""

    params: Float[Array, " p"]
    fisher: Float[Array, "p p"]
    steps: Int[Array, ""]
    key: Array


# -- the three estimates of E_{y ~ p(y | y-hat)} [(dl(y)/dtheta)^2] ------------------------------------------------


def exact() -> FisherEstimate:
    """The expectation itself, computed algebraically: (dbeta/dtheta)' Cov(T) (dbeta/dtheta)   (Appendix)."""

    def estimate(h: Mean, family: Family, params: Array, u: Any, y: Any, key: Array) -> Float[Array, "p p"]:
        return fisher_of_params(h, family, params, u)

    return estimate


def monte_carlo(n: int = 1) -> FisherEstimate:
    """The average over n synthetic samples y ~ p(y | y-hat): unbiased."""
    if n < 1:
        raise ValueError(f"n: a Monte Carlo estimate needs at least one sample, got {n}")

    def estimate(h: Mean, family: Family, params: Array, u: Any, y: Any, key: Array) -> Float[Array, "p p"]:
        natural = family.natural(h(params, u))
        samples = jax.vmap(lambda key: family.sample(key, natural))(jax.random.split(key, n))
        gradients = jax.vmap(lambda sample: loss_gradient(h, family, params, u, sample))(samples)
        return gradients.T @ gradients / n

    return estimate


def outer_product() -> FisherEstimate:
    """The observation y_t in the place of the expectation: common, and biased (Sec. 1.2)."""

    def estimate(h: Mean, family: Family, params: Array, u: Any, y: Any, key: Array) -> Float[Array, "p p"]:
        gradient = loss_gradient(h, family, params, u, y)
        return jnp.outer(gradient, gradient)

    return estimate


# -- the two equations --------------------------------------------------------------------------------------------


def update_fisher(
    fisher: Float[Array, "p p"], estimate: Float[Array, "p p"], fisher_decay: Number
) -> Float[Array, "p p"]:
    """J_t = (1 - gamma_t) J_{t-1} + gamma_t E[(dl_t(y)/dtheta)^2]   (eq. natgradJ)."""
    return (1 - fisher_decay) * fisher + fisher_decay * estimate


def update_params(
    params: Float[Array, " p"],
    fisher: Float[Array, "p p"],
    gradient: Float[Array, " p"],
    learning_rate: Number,
) -> Float[Array, " p"]:
    """theta_t = theta_{t-1} - eta_t J_t^-1 (dl_t(y_t)/dtheta)'   (eq. natgradtheta)."""
    return params - learning_rate * solve(fisher, gradient)


@dataclasses.dataclass(frozen=True)
class NaturalGradient:
    """Def. 1 as `init` and `step`; build it with `natural_gradient`."""

    h: Mean
    family: Family
    learning_rate: Callable[[Any], Any]
    fisher_decay: Callable[[Any], Any]
    fisher: FisherEstimate

    def init(
        self, params: Float[Array, " p"], fisher: Float[Array, "p p"], key: Array | None = None
    ) -> NaturalGradientState:
        """theta_0 and J_0; the key matters to Monte Carlo estimates only."""
        key = jax.random.key(0) if key is None else key
        return NaturalGradientState(params=params, fisher=fisher, steps=jnp.zeros((), int), key=key)

    def step(self, state: NaturalGradientState, u: Any, y: Any) -> NaturalGradientState:
        """The Fisher matrix first, then the parameter with the *new* matrix: Thm 2 is exact in this order only."""
        t = state.steps + 1
        estimate = self.fisher(self.h, self.family, state.params, u, y, jax.random.fold_in(state.key, t))
        gradient = loss_gradient(self.h, self.family, state.params, u, y)
        fisher = update_fisher(state.fisher, estimate, self.fisher_decay(t))
        params = update_params(state.params, fisher, gradient, self.learning_rate(t))
        return NaturalGradientState(params=params, fisher=fisher, steps=t, key=state.key)


def natural_gradient(
    h: Mean,
    family: Family,
    learning_rate: Rate,
    fisher_decay: Rate | None = None,
    fisher: FisherEstimate | None = None,
) -> NaturalGradient:
    """The online natural gradient of Def. 1, for y ~ p(y | h(params, u)).

    `learning_rate` (eta) and `fisher_decay` (gamma, by default eta) are numbers in (0, 1] or functions of the step t,
    t = 1 being the first observation; `fisher` is `exact()`, `monte_carlo(n)` or `outer_product()`.

    >>> import jax.numpy as jnp
    >>> from natkal.families import Gaussian
    >>> learner = natural_gradient(lambda w, u: w * u, Gaussian(jnp.eye(1)), lambda t: 1 / (t + 1))
    >>> state = learner.step(learner.init(jnp.zeros(1), jnp.eye(1)), jnp.ones(1), jnp.ones(1))
    >>> round(float(state.params[0]), 5), round(float(state.fisher[0, 0]), 5)
    (0.5, 1.0)
    """
    eta = as_schedule("learning_rate", learning_rate)
    gamma = eta if fisher_decay is None else as_schedule("fisher_decay", fisher_decay)
    return NaturalGradient(h, family, eta, gamma, exact() if fisher is None else fisher)
