"""The dictionary between natural gradient and Kalman filter: rates, matrices, priors (Thm 2, Props. 3 and 4)."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from natkal.families.checks import is_concrete
from natkal.models.fan_in import fan_in
from natkal.paper.prior import initial_cov as regularized_prior_cov
from natkal.paper.schedules import Number, check_fadings, check_rates, constant, inverse_sqrt, inverse_time, tabulate
from natkal.paper.solve import inverse
from natkal.typing import Array, Float, Params

__all__ = [
    "constant",
    "fading_from_learning_rate",
    "fan_in_prior",
    "inverse_sqrt",
    "inverse_time",
    "learning_rate_from_fading",
    "prior_cov_from_fisher",
    "prior_fisher_from_cov",
    "regularized_prior_cov",
    "tabulate",
    "to_kalman",
    "to_natural_gradient",
]

# -- rates ------------------------------------------------------------------------------------------------------------


def fading_from_learning_rate(etas: Float[Array, " times"] | np.ndarray | Sequence[float]) -> Float[Array, " steps"]:
    """lambda_1 .. lambda_T from eta_0 .. eta_T: 1 - lambda_t = eta_{t-1}/eta_t - eta_{t-1}   (Prop. 3, eq. rates).

    A lambda is negative where the rates decay faster than 1/t: past observations then gain weight.

    >>> import jax.numpy as jnp
    >>> fading_from_learning_rate(jnp.array([0.5, 0.5, 0.5])).tolist()
    [0.5, 0.5]
    """
    rates = jnp.asarray(etas, float)
    check_rates("etas", rates)
    if rates.ndim != 1 or rates.shape[0] < 1:
        raise ValueError(f"etas: expected the vector eta_0 .. eta_T, got shape {rates.shape}")
    before, now = rates[:-1], rates[1:]
    return 1 - (before / now - before)


def learning_rate_from_fading(
    lambdas: Float[Array, " steps"] | np.ndarray | Sequence[float], eta_0: Number
) -> Float[Array, " times"]:
    """eta_0 .. eta_T from lambda_1 .. lambda_T: S_0 = 1/eta_0, S_t = (1 - lambda_t) S_{t-1} + 1, eta_t = 1/S_t.

    >>> import jax.numpy as jnp
    >>> [round(float(eta), 3) for eta in learning_rate_from_fading(jnp.zeros(3), 1.0)]
    [1.0, 0.5, 0.333, 0.25]
    """
    fadings = jnp.asarray(lambdas, float)
    check_fadings("lambdas", fadings)
    check_rates("eta_0", eta_0)
    if fadings.ndim != 1:
        raise ValueError(f"lambdas: expected the vector lambda_1 .. lambda_T, got shape {fadings.shape}")

    def accumulate(weight: Float[Array, ""], fading: Float[Array, ""]) -> tuple[Array, Array]:
        total = (1 - fading) * weight + 1
        return total, total

    start = 1 / jnp.asarray(eta_0, fadings.dtype)
    _, weights = jax.lax.scan(accumulate, start, fadings)
    return 1 / jnp.concatenate([start[None], weights])


# -- states ------------------------------------------------------------------------------------------------------------


def to_natural_gradient(
    params: Float[Array, " p"], cov: Float[Array, "p p"], learning_rate: Number
) -> tuple[Float[Array, " p"], Float[Array, "p p"]]:
    """(s_t, P_t) as (theta_t, J_t) = (s_t, eta_t P_t^-1)   (Prop. 3; eta_t = 1/(t+1) in Thm 2)."""
    check_rates("learning_rate", learning_rate)
    return params, learning_rate * inverse(cov)


def to_kalman(
    params: Float[Array, " p"],
    fisher: Float[Array, "p p"],
    learning_rate: Number,
    fisher_decay: Number | None = None,
) -> tuple[Float[Array, " p"], Float[Array, "p p"]]:
    """(theta_t, J_t) as (s_t, P_t) = (theta_t, eta_t J_t^-1)   (Prop. 3).

    With `fisher_decay` (gamma) other than eta there is no Kalman filter that takes the same steps: a `ValueError`.
    """
    check_rates("learning_rate", learning_rate)
    if fisher_decay is not None:
        check_rates("fisher_decay", fisher_decay)
        known = is_concrete(learning_rate) and is_concrete(fisher_decay)
        if known and float(fisher_decay) != float(learning_rate):
            raise ValueError(
                f"fisher_decay: {float(fisher_decay):g} differs from learning_rate {float(learning_rate):g}; "
                "a natural gradient with gamma != eta has no exact Kalman image (Prop. 3)"
            )
    return params, learning_rate * inverse(fisher)


# -- priors ------------------------------------------------------------------------------------------------------------


def prior_cov_from_fisher(fisher: Float[Array, "p p"], eta_0: Number) -> Float[Array, "p p"]:
    """P_0 = eta_0 J_0^-1   (Prop. 3)."""
    check_rates("eta_0", eta_0)
    return eta_0 * inverse(fisher)


def prior_fisher_from_cov(cov: Float[Array, "p p"], eta_0: Number) -> Float[Array, "p p"]:
    """J_0 = eta_0 P_0^-1   (Prop. 3; eta_0 = 1 in Thm 2)."""
    check_rates("eta_0", eta_0)
    return eta_0 * inverse(cov)


def fan_in_prior(params: Params) -> Params:
    """Prior variances 1/fan-in for each parameter, the inverse of the paper's J_0 = diag(fan-in) (after Thm 2).

    A weight of shape (.., out) has fan-in `prod(shape[:-1])`; a vector takes that of the first weight beside it in the
    same container whose last axis has its length (the bias of that layer), and 1 where there is none.

    >>> import jax.numpy as jnp
    >>> prior = fan_in_prior({"weight": jnp.zeros((4, 2)), "bias": jnp.zeros(2)})
    >>> prior["weight"].shape, prior["bias"].tolist()
    ((4, 2), [0.25, 0.25])
    """
    return jax.tree.map(lambda leaf, size: jnp.full_like(leaf, 1 / size), params, fan_in(params))
