"""A learner behind running scales: it sees inputs and real targets of centre 0 and deviation about 1."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from natkal.banks.bank import Bank, value_of
from natkal.banks.mixture import Mixture
from natkal.banks.paths import ROUNDS, Inputs, Units, draw_paths
from natkal.banks.state import BankInfo, BankState
from natkal.banks.units.scales import FIRST_ROWS
from natkal.banks.units.standardise import ScaledState, Standard, Standardiser
from natkal.compiling.policy import jit_method
from natkal.engine.checks import as_precision
from natkal.engine.joint import JointLaw
from natkal.engine.protocol import Feed
from natkal.families.base import Family, as_float
from natkal.typing import Array, Params


@dataclasses.dataclass(frozen=True, eq=False)
class Scaled:
    """A bank behind running scales (`units`); `nk.auto` builds it.

    Before `FIRST_ROWS` targets are known there is no scale to learn in: those rows are predicted by their centre so far
    or the last one (`first_rows.py`; those of counts by their centre), kept, and then learned together. Predictions and
    log probabilities are in the user's units.
    """

    bank: Bank
    units: Standardiser
    name: Any = None
    """All that it was made of, in words and numbers, so that its programs can be kept; None where there are none."""

    @property
    def outputs(self) -> Family:
        """The law of an observation."""
        return self.units.outputs

    def __repr__(self) -> str:
        return f"Scaled({self.bank!r})"

    def init(self, params: Params | None = None, key: Array | None = None) -> ScaledState:
        """The state before any observation."""
        bank = self.bank.init(params, key)
        return self.units.start(bank.log_weights.dtype)._replace(bank=bank)

    @jit_method
    def predict(self, state: ScaledState, inputs: Any) -> Mixture:
        """The predictive law of the next y for these inputs; learns nothing."""
        asked = self.units.standardise_only(state, as_precision(state.bank.log_weights.dtype, inputs))
        return self.units.in_users_units(self.bank.predict(state.bank, asked.inputs), asked.units)

    @jit_method
    def step(self, state: ScaledState, inputs: Any, target: Any) -> tuple[ScaledState, BankInfo]:
        """Predict, observe, learn. A NaN target is only predicted."""
        inputs, target = as_precision(state.bank.log_weights.dtype, (inputs, jnp.asarray(target)))
        after, now = self.units.standardise(state._replace(bank=()), inputs, target)
        if not self.units.warms_up:
            bank, info = self.bank.step(state.bank, now.inputs, now.target)
            return after._replace(bank=self.follow_units(bank, now)), self._told(now, info, target)
        # the first rows are predicted only; with the last of them all are learned, in the scales they made together
        replayed = jnp.where((after.rows == FIRST_ROWS) & (state.rows < FIRST_ROWS), FIRST_ROWS, 0)

        def learn(turn: Array, carried: tuple[BankState, BankInfo]) -> tuple[BankState, BankInfo]:
            bank, info = carried
            kept = jax.tree.map(lambda leaf: leaf[jnp.maximum(turn - 1, 0)], (after.first_inputs, after.first_targets))
            again = self.units.standardise_again(after, *kept)
            row = jax.tree.map(
                lambda present, old: jnp.where(turn == 0, present, old),
                (now.inputs, now.target),
                (again.inputs, again.target),
            )
            bank, told = self.bank.step(bank, *row)
            return bank, jax.tree.map(lambda new, old: jnp.where(turn == 0, new, old), told, info)

        shapes = jax.eval_shape(self.bank.step, state.bank, now.inputs, now.target)[1]
        silent = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        bank, info = jax.lax.fori_loop(0, 1 + replayed, learn, (state.bank, silent))
        return after._replace(bank=self.follow_units(bank, now)), self._told(now, info, target)

    def restart(self, state: ScaledState) -> ScaledState:
        """The start of a new sequence; all that was learned stays."""
        return state._replace(bank=self.bank.restart(state.bank))

    def forecast(self, state: ScaledState, inputs: Any, horizon: int, feed: Feed | None = None) -> Mixture:
        """The next `horizon` observations in the user's units; `feed` takes and gives the user's units too.

        All steps are seen in the scales of the first one, as in `paths`.
        """
        inputs = as_precision(state.bank.log_weights.dtype, jax.tree.map(jnp.asarray, inputs))
        first = inputs if feed is not None else jax.tree.map(lambda leaf: leaf[0], inputs)
        seen = self.units.seen(state, first)

        def standard_feed(mean: Array) -> Any:
            assert feed is not None
            if not self.units.has_units:
                return self.units.standardised(seen, feed(mean))
            location, scale, *_ = self.units.target_units(state)
            y = location + scale * jnp.reshape(mean, location.shape)
            return self.units.standardised(seen, feed(jnp.reshape(y, (-1,))))

        if feed is None:
            scaled = jax.vmap(lambda row: self.units.standardised(seen, row))(inputs)
            prediction = self.bank.forecast(state.bank, scaled, horizon)
        else:
            prediction = self.bank.forecast(state.bank, self.units.standardised(seen, inputs), horizon, standard_feed)
        units = self.units.target_units(state) if self.units.has_units else None
        return jax.vmap(lambda one: self.units.in_users_units(one, units))(prediction)

    def paths(self, state: ScaledState, key: Array, inputs: Inputs, horizon: int, rounds: int = ROUNDS) -> Array:
        """Draws of the next `horizon` observations, (paths, horizon, *event); `inputs` speaks the user's units.

        All steps are seen in the scales of the first one. These hold one input more than `state` does, as they do in
        every prediction: past targets and targets are then centred alike, and no bias adds up from step to step.
        """
        dtype = state.bank.log_weights.dtype
        seen = self.units.seen(state, as_precision(dtype, inputs.at(inputs.start(key), jnp.zeros((), jnp.int32))))

        def at(memory: Any, step: Array) -> Any:
            return self.units.standardised(seen, as_precision(dtype, inputs.at(memory, step)))

        units = Units(*self.units.target_units(state)[:2]) if self.units.has_units else None
        return draw_paths(self.bank, state.bank, key, inputs._replace(at=at), horizon, units, rounds)

    def sample(self, state: ScaledState, key: Array) -> Params:
        """Parameters of a member, of a model that sees standardised data."""
        return self.bank.sample(state.bank, key)

    def covariance(self, state: ScaledState) -> Array:
        """That of the parameters of a model that sees standardised data."""
        return self.bank.covariance(state.bank)

    @property
    def joint_sizes(self) -> tuple[int, ...]:
        """The bank's."""
        return self.bank.joint_sizes

    def joint(self, state: ScaledState, inputs: Any) -> JointLaw:
        """The joint law of the outputs of several arms, in the user's units."""
        inputs = as_precision(state.bank.log_weights.dtype, inputs)
        shared = {name: None for name in inputs if name != "arm"}

        def one(arm: Any) -> Any:
            row = {**inputs, "arm": arm}
            return self.units.standardised(self.units.seen(state, row), row)

        law = self.bank.joint(state.bank, jax.vmap(one, out_axes={**shared, "arm": 0})(inputs["arm"]))
        if not self.units.has_units:
            return law
        location, scale, *_ = self.units.target_units(state)
        if self.units.outputs.support == "real":
            law = law._replace(location=location + scale * law.location, cov=jnp.square(scale) * law.cov)
        return law._replace(mean=location + scale * law.mean, noise=jnp.square(scale) * law.noise)

    def inflate(self, state: ScaledState, factor: Array) -> ScaledState:
        """The state with every member's covariance times `factor`."""
        return state._replace(bank=self.bank.inflate(state.bank, factor))

    def best(self, state: ScaledState) -> tuple[Any, Any]:
        """The member with the largest weight, as a learner of its own, which sees standardised data."""
        return self.bank.best(state.bank)

    def prune(self, state: ScaledState, keep: int) -> tuple["Scaled", ScaledState]:
        """Only the `keep` members of largest weight: quicker by as much."""
        bank, pruned = self.bank.prune(state.bank, keep)
        return dataclasses.replace(self, bank=bank, name=None), state._replace(bank=pruned)

    def follow_units(self, bank: BankState, row: "Standard") -> BankState:
        """The bank after a row, with its noise in the units of the next one: the noise is that of the user's values.

        Where the scale of a series grows with its trend, its noise stays what it is.
        """
        if row.growth is None:
            return bank
        if jax.tree.leaves(bank.noise):  # not of laws without a memory
            bank = bank._replace(noise=jax.vmap(self.bank.laws.in_units, (0, None))(bank.noise, row.growth))
        own = bank.marginal
        if self.bank.marginal is None or own is None:
            return bank
        return bank._replace(marginal=own._replace(memory=self.bank.marginal.in_units(own.memory, row.growth)))

    def _told(self, row: "Standard", info: BankInfo, target: Array) -> BankInfo:
        """What the observation told, in the user's units; log p is a density per unit of the user's y."""
        if row.units is None:
            return info
        y = as_float(value_of(self.units.outputs, target), target.dtype)
        prediction = self.units.in_users_units(info.prediction, row.units)
        observed = jnp.any(~jnp.isnan(y))
        log_prob = jnp.where(observed, self.units.log_prob(row, info, prediction, y), 0.0)
        shift = jnp.where(info.observed, log_prob - info.log_prob, 0.0)
        return info._replace(
            log_prob=log_prob,
            prediction=prediction,
            observed=observed,
            expert_log_prob=info.expert_log_prob + shift,
        )
