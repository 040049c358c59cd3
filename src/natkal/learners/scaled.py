"""Scales learned along with everything else: a bank sees inputs and real targets of mean 0 and variance about 1."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.engine import Learner, LearnerState
from natkal.engine.checks import check_observation, explain_shapes, in_precision_of
from natkal.families.base import as_float
from natkal.learners.bank import Bank, BankInfo, BankState
from natkal.learners.mixture import Mixture
from natkal.models import Model
from natkal.typing import Array, Float, Params

LIMIT = 8.0
"""A standardised input is cut off here: the first rows know little of the scale."""


class Double(NamedTuple):
    """A sum of two floats that together hold twice the digits: float32 sums as accurate as float64 ones."""

    high: Float[Array, "*e"]
    low: Float[Array, "*e"]


class Running(NamedTuple):
    """How many values, their mean and the sum of squared deviations from it (Welford), entry by entry."""

    seen: Double
    mean: Double
    squares: Double


def start(shape: tuple[int, ...], dtype: Any) -> Running:
    """Nothing seen."""
    zeros = jnp.zeros(shape, dtype)
    return Running(seen=Double(zeros, zeros), mean=Double(zeros, zeros), squares=Double(zeros, zeros))


def observe(running: Running, values: Float[Array, "*e"]) -> Running:
    """n <- n + 1,  m <- m + (x - m)/n,  s <- s + (x - m_old)(x - m_new); a NaN is missing and changes nothing."""
    present = jnp.isfinite(values)
    seen = _add(running.seen, present.astype(values.dtype))
    count = jnp.maximum(seen.high, 1.0)
    before = jnp.where(present, _from(values, running.mean), 0.0)
    mean = _add(running.mean, before / count)
    after = jnp.where(present, _from(values, mean), 0.0)
    return Running(seen=seen, mean=mean, squares=_add(running.squares, before * after))


def standardised(running: Running, values: Float[Array, "*e"]) -> Float[Array, "*e"]:
    """(x - mean) / deviation, cut off at +-`LIMIT`; 0 where there is no scale yet."""
    scale = deviation(running)
    known = scale > 0
    return jnp.where(known, jnp.clip(_from(values, running.mean) / jnp.where(known, scale, 1.0), -LIMIT, LIMIT), 0.0)


def deviation(running: Running) -> Float[Array, "*e"]:
    """The standard deviation so far; 0 until two different values have been seen."""
    return jnp.sqrt(jnp.maximum(running.squares.high, 0.0) / jnp.maximum(running.seen.high, 1.0))


class StandardizedState(NamedTuple):
    """The running scales of inputs and targets (None where targets have none), and the bank's own state."""

    inputs: Any
    targets: Running | None
    bank: BankState

    @property
    def params(self) -> Params:
        """The parameters of the bank's best member."""
        return self.bank.params

    @property
    def carry(self) -> Any:
        """The memory of that member's model."""
        return self.bank.carry


@dataclasses.dataclass(frozen=True, eq=False)
class Standardized:
    """A bank behind running scales; built by `auto`.

    `noise_cov` is what the user's Gaussian family expects of a target before any was seen; None leaves targets as they
    are.
    """

    model: Model
    bank: Bank
    scale_inputs: bool
    noise_cov: Any

    def init(self, params: Params, key: Array | None = None, inputs: Any = None) -> StandardizedState:
        """The state before any observation; with a row of `inputs` it already has its final shape."""
        state = self.bank.init(params, key)
        shape, dtype = self.model.outputs.event_shape, state.log_weights.dtype
        targets = None if self.noise_cov is None else start(shape, dtype)
        fresh = StandardizedState(inputs=None, targets=targets, bank=state)
        return fresh if inputs is None else self.prepare(fresh, inputs)

    def prepare(self, state: StandardizedState, inputs: Any) -> StandardizedState:
        """A state with scales for inputs of this shape, where it has none yet."""
        if not self.scale_inputs or state.inputs is not None:
            return state
        dtype = state.bank.log_weights.dtype
        return state._replace(
            inputs=jax.tree.map(lambda leaf: start(jnp.shape(leaf), dtype) if _is_real(leaf) else None, inputs)
        )

    def predict(self, state: StandardizedState, inputs: Any) -> Mixture:
        """What the mixture expects of the next y for these inputs; learns nothing."""
        check_observation(self.model, inputs)
        with explain_shapes(self.model, state.params, state.carry, inputs):
            return self._predict(self.prepare(state, inputs), inputs)

    def step(self, state: StandardizedState, inputs: Any, target: Any) -> tuple[StandardizedState, BankInfo]:
        """Predict, observe, learn. A NaN target is only predicted."""
        check_observation(self.model, inputs, target)
        with explain_shapes(self.model, state.params, state.carry, inputs):
            return self._step(self.prepare(state, inputs), inputs, target)

    def restart(self, state: StandardizedState) -> StandardizedState:
        """The start of a new sequence; all that was learned stays."""
        return state._replace(bank=self.bank.restart(state.bank))

    @functools.cached_property
    def _predict(self):
        return jax.jit(self.predict_unchecked)

    @functools.cached_property
    def _step(self):
        return jax.jit(self.step_unchecked)

    def predict_unchecked(self, state: StandardizedState, inputs: Any) -> Mixture:
        """`predict` on values already checked, for use inside other transformations."""
        _, scaled = self._scaled(state, in_precision_of(state.params, inputs))
        return self._in_users_units(state, self.bank.predict_unchecked(state.bank, scaled))

    def step_unchecked(self, state: StandardizedState, inputs: Any, target: Any) -> tuple[StandardizedState, BankInfo]:
        """`step` on values already checked, for use inside other transformations."""
        inputs, target = in_precision_of(state.params, (inputs, jnp.asarray(target)))
        seen, scaled = self._scaled(state, inputs)
        if state.targets is None:
            bank, info = self.bank.step_unchecked(state.bank, scaled, target)
            return state._replace(inputs=seen, bank=bank), info
        y = as_float(target, state.bank.log_weights.dtype)
        location, scale, known = self._target_scale(state.targets)
        standard = jnp.where(known, (y - location) / scale, jnp.nan)
        bank, info = self.bank.step_unchecked(state.bank, scaled, standard)
        # the density of y is that of the standardised y over the scale; Cauchy where there is no scale yet
        units = jnp.where(known, -jnp.log(scale), _without_scale(y, location, scale))
        log_prob = info.log_prob + jnp.sum(jnp.where(jnp.isnan(y), 0.0, units))
        info = info._replace(
            log_prob=log_prob,
            prediction=self._in_users_units(state, info.prediction),
            observed=~jnp.all(jnp.isnan(y)),
            expert_log_prob=info.expert_log_prob + (log_prob - info.log_prob),
        )
        return StandardizedState(inputs=seen, targets=observe(state.targets, y), bank=bank), info

    def cdf(self, prediction: Mixture, y: Any) -> Array:
        """P(Y <= y), entry by entry; stacked predictions of `run` take one y each."""
        return self.bank.cdf(prediction, y)

    def quantile(self, prediction: Mixture, probability: float) -> Array:
        """The y below which lies this probability; stacked predictions of `run` give one each."""
        return self.bank.quantile(prediction, probability)

    def interval(self, prediction: Mixture, level: float = 0.9) -> tuple[Array, Array]:
        """The central interval that should hold y with probability `level`."""
        return self.bank.interval(prediction, level)

    def best(self, state: StandardizedState) -> tuple[Learner, LearnerState]:
        """The member with the largest weight, as a learner of its own, which sees standardised data."""
        return self.bank.best(state.bank)

    def prune(self, state: StandardizedState, keep: int) -> tuple["Standardized", StandardizedState]:
        """Only the `keep` members of largest weight: quicker by as much."""
        bank, pruned = self.bank.prune(state.bank, keep)
        return dataclasses.replace(self, bank=bank), state._replace(bank=pruned)

    def _scaled(self, state: StandardizedState, inputs: Any) -> tuple[Any, Any]:
        """The scales with this row in them, and the row so scaled: inputs are known before y."""
        if not self.scale_inputs:
            return state.inputs, inputs
        leaves, structure = jax.tree.flatten(inputs)
        scales = structure.flatten_up_to(state.inputs)
        seen = [None if own is None else observe(own, leaf) for own, leaf in zip(scales, leaves, strict=True)]
        scaled = [
            leaf if own is None else standardised(own, leaf).astype(leaf.dtype)
            for own, leaf in zip(seen, leaves, strict=True)
        ]
        return structure.unflatten(seen), structure.unflatten(scaled)

    def _target_scale(self, targets: Running) -> tuple[Array, Array, Array]:
        """Location and scale of the earlier targets, and whether there is a scale; the user's own until there is."""
        scale = deviation(targets)
        known = scale > 0
        own = jnp.asarray(self.noise_cov, scale.dtype)
        expected = jnp.sqrt(jnp.diagonal(own) if own.ndim == 2 else own)
        return targets.mean.high, jnp.where(known, scale, expected), known

    def _in_users_units(self, state: StandardizedState, mixture: Mixture) -> Mixture:
        if state.targets is None:
            return mixture
        location, scale, _ = self._target_scale(state.targets)
        flat = jnp.reshape(scale, mixture.mean.shape)
        return mixture._replace(
            mean=jnp.reshape(location, mixture.mean.shape) + flat * mixture.mean,
            total_cov=flat[:, None] * mixture.total_cov * flat[None, :],
            location=location,
            scale=scale,
        )


def _is_real(leaf: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(leaf), jnp.floating))


def _without_scale(y: Array, location: Array, scale: Array) -> Array:
    """Log density of the first values: Cauchy, as wide as expected or, as likely, as the first value is large."""

    def cauchy(width: Array) -> Array:
        return -jnp.log(jnp.pi * width) - jnp.log1p(jnp.square((y - location) / width))

    return jnp.logaddexp(cauchy(scale), cauchy(jnp.maximum(jnp.abs(location), scale))) - jnp.log(2.0)


def _from(values: Array, mean: Double) -> Array:
    return (values - mean.high) - mean.low


def _add(total: Double, value: Array) -> Double:
    """Knuth's two-sum, its error kept."""
    high = total.high + value
    virtual = high - total.high
    error = (total.high - (high - virtual)) + (value - virtual)
    low = total.low + error
    carried = high + low
    return Double(high=carried, low=low - (carried - high))
