"""How fast to learn and to forget: fading memory or a learning rate, one pair of scalars either way (Prop. 3)."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from natkal.families.checks import is_concrete
from natkal.typing import Array, Float

Schedule = Callable[[Array], ArrayLike]


class Rate(NamedTuple):
    """`Lambda <- keep Lambda + weight V V'` for one observation."""

    keep: Float[Array, ""]
    weight: Float[Array, ""]


@runtime_checkable
class Rates(Protocol):
    """A rule for forgetting."""

    @property
    def is_kalman(self) -> bool:
        """Whether a fading-memory Kalman filter takes exactly these steps (gamma = eta)."""
        ...

    def at(self, count: Float[Array, ""], *, prior_kept: bool) -> Rate:
        """The rate of observation number `count`, the first being 1."""
        ...

    def initial_scale(self, prior_weight: ArrayLike | None) -> ArrayLike:
        """P_0 = scale * prior_cov."""
        ...

    def check_precision(self, dtype: DTypeLike) -> None:
        """Refuse a rate too small to have any effect in this precision."""
        ...

    def left(self, observations: np.ndarray) -> np.ndarray:
        """The share of the earlier evidence that is left after so many observations; a constant fading only."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class Fading:
    """Fading memory; build it with `fading`."""

    amount: ArrayLike | Schedule
    is_kalman = True

    def at(self, count: Float[Array, ""], *, prior_kept: bool) -> Rate:
        """P <- P / (1 - lambda_t)   (Prop. 3)."""
        keep = _scalar(1 - _schedule(self.amount)(count), count)
        return Rate(keep=_usable(keep, at_most_one=True), weight=jnp.ones_like(count))

    def initial_scale(self, prior_weight: ArrayLike | None) -> ArrayLike:
        """With a kept prior the filter starts from `n ln pi` alone (L_0 = 0 in Prop. 4), so P_0 = Sigma_0 / n."""
        return 1.0 if prior_weight is None else 1 / jnp.asarray(prior_weight)

    def check_precision(self, dtype: DTypeLike) -> None:
        """1 - lambda must differ from 1."""
        amount = _schedule(self.amount)(jnp.ones(()))
        if is_concrete(amount) and np.asarray(amount) != 0 and np.asarray(1 - np.asarray(amount, float), dtype) == 1:
            raise ValueError(
                f"fading: {float(np.asarray(amount))} has no effect in {np.dtype(dtype)}, as 1 - fading rounds to 1; "
                "use a larger one (float32 tells 1e-7 from 0), or float64 parameters"
            )

    def left(self, observations: np.ndarray) -> np.ndarray:
        """(1 - lambda)^n."""
        if callable(self.amount):
            raise ValueError("fading: what is left of the prior is known for a constant only, not for a schedule")
        return (1 - np.asarray(self.amount, float)) ** observations


@dataclasses.dataclass(frozen=True, eq=False)
class LearningRate:
    """A learning rate and a Fisher decay rate; build it with `learning_rate`."""

    rate: Schedule
    decay: Schedule | None
    constant: bool

    @property
    def is_kalman(self) -> bool:
        """Only with gamma = eta is the natural gradient a Kalman filter."""
        return self.decay is None

    def at(self, count: Float[Array, ""], *, prior_kept: bool) -> Rate:
        """Def. 1 divided by eta_t: keep = (1 - gamma_t) eta_{t-1}/eta_t, weight = gamma_t/eta_t."""
        now = _scalar(self.rate(count), count)
        # Prop. 4 sets eta_0 := eta_1; Prop. 3 takes eta_0 from the schedule, if it has one (1/t has not).
        before = _scalar(self.rate(jnp.maximum(count - 1, 1.0) if prior_kept else count - 1), count)
        before = jnp.where(jnp.isfinite(before), before, now)
        if self.decay is None:
            return Rate(keep=_usable(before / now - before, at_most_one=prior_kept), weight=jnp.ones_like(count))
        decay = _scalar(self.decay(count), count)
        return Rate(keep=_usable((1 - decay) * before / now, at_most_one=False), weight=decay / now)

    def initial_scale(self, prior_weight: ArrayLike | None) -> ArrayLike:
        """Prop. 4: P_0 = eta_1 / (1 + n eta_1) Sigma_0; without a kept prior prior_cov is P_0 itself."""
        if prior_weight is None:
            return 1.0
        first = jnp.asarray(self.rate(jnp.ones(())))
        return first / (1 + prior_weight * first)

    def check_precision(self, dtype: DTypeLike) -> None:
        """A constant eta is a fading of eta."""
        if self.constant:
            Fading(amount=self.rate).check_precision(dtype)

    def left(self, observations: np.ndarray) -> np.ndarray:
        """Refused."""
        raise ValueError("learning_rate: what is left of the prior is known for a constant fading only; use nk.fading")


def fading(amount: ArrayLike | Schedule = 0.0) -> Fading:
    """Forget a share `amount` (lambda) of all earlier evidence before each observation; 0 never forgets.

    `amount` is a number in [0, 1) or a function of the step t = 1, 2, ... A constant lambda remembers about 1/lambda
    observations and learns at the constant rate eta = lambda (Prop. 3).
    """
    _check("fading", amount, low=0.0, low_allowed=True, high_allowed=False, interval="[0, 1)")
    return Fading(amount=amount)


def learning_rate(rate: ArrayLike | Schedule, fisher_decay: ArrayLike | Schedule | None = None) -> LearningRate:
    """Online natural gradient with learning rate eta and Fisher decay rate gamma (Def. 1).

    `rate` is a number in (0, 1] or a function of the step, optax's convention: t = 1 is the first observation and
    `rate(0)` is the eta_0 that ties J_0 to P_0 = eta_0 J_0^-1. Left out, `fisher_decay` equals the rate, and the steps
    are those of a Kalman filter whose memory fades by 1 - lambda_t = eta_{t-1}/eta_t - eta_{t-1} (Prop. 3):
    `lambda t: 1 / (t + 1)` never forgets.
    """
    _check("learning_rate", rate, low=0.0, low_allowed=False, high_allowed=True, interval="(0, 1]")
    if fisher_decay is not None:
        _check("fisher_decay", fisher_decay, low=0.0, low_allowed=False, high_allowed=True, interval="(0, 1]")
    return LearningRate(
        rate=_schedule(rate),
        decay=None if fisher_decay is None else _schedule(fisher_decay),
        constant=not callable(rate),
    )


def _schedule(value: ArrayLike | Schedule) -> Schedule:
    return value if callable(value) else lambda count: value


def _scalar(value: ArrayLike, like: Array) -> Array:
    return jnp.asarray(value, like.dtype)


def _usable(keep: Float[Array, ""], *, at_most_one: bool) -> Float[Array, ""]:
    """`keep` brought to where every update is defined, so that no schedule stops a learner, by rounding or otherwise.

    At least sqrt(eps): a filter that keeps nothing knows nothing, and its variances are infinite. At most 1 where a
    share 1 - keep is handed out (a kept prior) or was asked for (fading); a learning rate that falls faster than 1/t
    has lambda < 0 in Prop. 3, and without a kept prior it keeps its growth.
    """
    return jnp.clip(keep, float(np.sqrt(jnp.finfo(keep.dtype).eps)), 1.0 if at_most_one else None)


def _check(
    name: str, value: ArrayLike | Schedule, *, low: float, low_allowed: bool, high_allowed: bool, interval: str
) -> None:
    """Refuse a concrete number outside its interval; a schedule by its first values, which may round past 0."""
    if not callable(value) and not is_concrete(value):
        return
    for step in (1, 2, 10, 1000) if callable(value) else (1,):
        number = value(jnp.asarray(float(step))) if callable(value) else value
        if not is_concrete(number):
            return
        number = float(np.asarray(number))
        lowest = low - (1e-6 if callable(value) else 0.0)
        if not (number > low or (low_allowed and number >= lowest)) or not (
            number < 1 or (high_allowed and number == 1)
        ):
            where = f" at step {step}" if callable(value) else ""
            raise ValueError(f"{name}: must lie in {interval}, got {number}{where}")
