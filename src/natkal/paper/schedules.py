"""Rates as functions of the step: t = 1 is the first observation, eta(0) is the paper's eta_0."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from natkal.families.checks import is_concrete
from natkal.typing import Array, Float

Number = float | int | Float[Array, ""]
"""One number, known or traced."""

Schedule = Callable[[Any], Any]
"""`t -> rate`, any function that JAX can trace."""

Rate = Number | Schedule
"""A number, or a function of t."""


def inverse_time(cst: float | int = 1.0) -> Schedule:
    """eta_t = 1/(t + cst): no forgetting, the prior weighs as much as cst observations (Thm 2 has cst = 1)."""
    if not cst >= 1:
        raise ValueError(f"cst: 1/(t + cst) is a rate in (0, 1] from t = 0 on for cst >= 1 only, got {cst}")
    return lambda t: 1 / (t + cst)


def constant(eta: Number) -> Schedule:
    """eta_t = eta: a constant forgetting factor lambda = eta (after Prop. 3)."""
    check_rates("eta", eta)
    return lambda t: jnp.full(jnp.shape(t), eta)


def inverse_sqrt(cst: float | int = 1.0, scale: float | int = 1.0) -> Schedule:
    """eta_t = scale / sqrt(t + cst): a filter on the O(sqrt t) most recent observations (after Prop. 3)."""
    if not cst > 0:
        raise ValueError(f"cst: scale / sqrt(t + cst) needs cst > 0, got {cst}")
    check_rates("scale / sqrt(cst)", scale / cst**0.5)
    return lambda t: scale / jnp.sqrt(t + cst)


def as_schedule(name: str, rate: Rate) -> Schedule:
    """A function of t as it is; a number, checked, as a constant one."""
    if callable(rate):
        return rate
    check_rates(name, rate)
    return lambda t: jnp.asarray(rate)


def tabulate(schedule: Schedule, steps: int) -> Float[Array, " times"]:
    """eta_0 .. eta_T, the array that `dictionary.fading_from_learning_rate` reads."""
    times = jnp.arange(steps + 1)
    return jnp.broadcast_to(jnp.asarray(schedule(times), float), times.shape)


def check_rates(name: str, rates: Any) -> None:
    """Raise unless every concrete rate is in (0, 1]; traced values pass."""
    _check(name, rates, lambda eta: (eta > 0) & (eta <= 1), "a learning rate is in (0, 1]")


def check_fadings(name: str, fadings: Any) -> None:
    """Raise unless every concrete lambda is in [0, 1), up to rounding at 0; traced values pass."""
    _check(name, fadings, lambda fading: (fading > -_rounding(fading)) & (fading < 1), "a fading is in [0, 1)")


def _rounding(values: np.ndarray) -> float:
    """How far below 0 the rounding of eta_{t-1}/eta_t - eta_{t-1} can take a lambda that is 0."""
    return 16 * float(np.finfo(values.dtype).eps)


def _check(name: str, values: Any, good: Callable[[np.ndarray], np.ndarray], rule: str) -> None:
    if not is_concrete(values):
        return
    concrete = np.asarray(values)
    if not np.issubdtype(concrete.dtype, np.floating):
        concrete = concrete.astype(float)
    bad = ~good(concrete)
    if bad.any():
        raise ValueError(f"{name}: {rule}, got {concrete[bad].flat[0]:g}")
