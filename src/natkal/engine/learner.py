"""The step, once: any model, family, curvature, rate, Fisher estimate and step control."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from natkal.curvature import Curvature, Response, Update, chosen, dense
from natkal.engine import counter
from natkal.engine.blur import blurred
from natkal.engine.checks import check_observation, check_params, explain_shapes, in_precision_of
from natkal.engine.directions import along_scores
from natkal.engine.fisher import Fisher, exact
from natkal.engine.plan import check_fits
from natkal.engine.prior import check_prior, make_prior
from natkal.engine.rates import Rate, Rates, fading
from natkal.engine.robust import Robust, surprise
from natkal.engine.state import LearnerState, Prediction, StepInfo, make_prediction
from natkal.engine.step_control import Seen, StepControl, step_control
from natkal.families.checks import is_concrete
from natkal.models import Linearization, Model, Rows, dense_rows, ravel
from natkal.typing import Array, Bool, Float, Params


class Look(NamedTuple):
    """One observation, looked at from one linearisation point."""

    around: Linearization
    seen: Seen
    log_prob: Float[Array, ""]
    observed: Bool[Array, ""]


@dataclasses.dataclass(frozen=True, eq=False)
class Learner:
    """Pure functions `init`, `predict` and `step` on a pytree state; build it with `online`."""

    model: Model
    prior_cov: Any
    curvature: Curvature
    rates: Rates
    fisher: Fisher
    prior_weight: ArrayLike | None
    control: StepControl
    robust: Robust | None

    def init(self, params: Params, key: Array | None = None) -> LearnerState:
        """The state before any observation, centred on `params`; `key` seeds a sampled Fisher matrix."""
        check_params(self.model, params)
        params = jax.tree.map(jnp.asarray, params)
        self.rates.check_precision(ravel(params).dtype)
        prior = make_prior(
            self.model,
            params,
            self.prior_cov,
            scale=self.rates.initial_scale(self.prior_weight),
            kept=self.prior_weight is not None,
        )
        return LearnerState(
            params=params,
            curvature=self.curvature.init(prior),
            carry=self.model.init_carry(params),
            steps=counter.zero(),
            outliers=jnp.zeros((), jnp.int32),
            key=jax.random.key(0) if key is None else key,
            prior_params=None if self.prior_weight is None else params,
        )

    def predict(self, state: LearnerState, inputs: Any) -> Prediction:
        """What is expected of the next y for these inputs; learns nothing."""
        check_observation(self.model, inputs)
        with explain_shapes(self.model, state.params, state.carry, inputs):
            return self._predict(state, inputs)

    def step(self, state: LearnerState, inputs: Any, target: Any) -> tuple[LearnerState, StepInfo]:
        """Predict, observe, learn: the state after one observation and what it told. A NaN target is only predicted."""
        check_observation(self.model, inputs, target)
        with explain_shapes(self.model, state.params, state.carry, inputs):
            return self._step(state, inputs, target)

    def prepare(self, state: LearnerState, inputs: Any) -> LearnerState:
        """The state as it is: nothing in it depends on the shape of `inputs`."""
        return state

    def restart(self, state: LearnerState) -> LearnerState:
        """The learner at the start of a new sequence: the model's memory starts again, all that was learned stays."""
        return state._replace(carry=self.model.restart(state.params, state.carry))

    def forecast(
        self, state: LearnerState, inputs: Any, horizon: int, feed: Callable[[Array], Any] | None = None
    ) -> Prediction:
        """The next `horizon` observations, blurred by what is not known of parameters and state; learns nothing.

        `inputs` has one row for each of them. With `feed`, it is the first row alone, and `feed(T)` makes each later
        one from the observation before it, of which the expected T(y) is known: `lambda mean: mean` for a series that
        is fed its own last value. Each observation's own noise then counts as well.
        """
        from natkal.engine.forecast import forecast

        return forecast(self, state, inputs, horizon, feed)

    def covariance(self, state: LearnerState) -> Float[Array, "p p"]:
        """The posterior covariance P of the flat parameters, in full."""
        return self.curvature.to_dense(state.curvature)

    def sample(self, state: LearnerState, key: Array) -> Params:
        """Parameters drawn from the posterior N(params, P)."""
        deviation = self.model.unravel(self.curvature.sample(state.curvature, key))
        return jax.tree.map(jnp.add, state.params, deviation)

    @functools.cached_property
    def textbook(self) -> "Learner":
        """The same learner without step control or down-weighting: the paper to the letter."""
        return dataclasses.replace(self, control=step_control(cap=None), robust=None)

    @functools.cached_property
    def _predict(self):
        return jax.jit(self.predict_unchecked)

    @functools.cached_property
    def _step(self):
        return jax.jit(self.step_unchecked)

    def predict_unchecked(self, state: LearnerState, inputs: Any) -> Prediction:
        """`predict` on values already checked, for use inside other transformations."""
        with jax.default_matmul_precision("highest"):
            around = self.model.linearize(state.params, state.carry, in_precision_of(state.params, inputs))
            gram = self.curvature.quadratic(state.curvature, self._rows(around))
            return make_prediction(self.model.outputs, around.raw, _raw_cov(around, gram))

    def step_unchecked(self, state: LearnerState, inputs: Any, target: Any) -> tuple[LearnerState, StepInfo]:
        """`step` on values already checked, for use inside other transformations."""
        inputs, target = in_precision_of(state.params, (inputs, jnp.asarray(target)))
        with jax.default_matmul_precision("highest"):
            return self._learn(state, inputs, target)

    def _learn(self, state: LearnerState, inputs: Any, target: Array) -> tuple[LearnerState, StepInfo]:
        next_key, draw_key = self.draw_keys(state)
        look = self.look(state, inputs, target, draw_key)
        steps = counter.increment(state.steps)
        rate = self.rate(counter.value(steps, look.log_prob.dtype), look.observed)
        weight, outliers = self.weigh(state, look.seen, rate)
        update = self.update(state, look, target, rate, weight)
        info = StepInfo(
            log_prob=look.log_prob,
            prediction=make_prediction(
                self.model.outputs,
                look.around.raw,
                _raw_cov(look.around, update.gram) if look.seen.lift is None else None,
            ),
            observed=look.observed,
            # One bad value never poisons the state: a step that is not finite is not taken.
            accepted=self.finite(update) & jnp.isfinite(look.log_prob),
            weight=weight,
        )
        ahead = jnp.zeros_like(update.step)
        if self.control.relinearize:
            ahead, look, update = self._relinearized(state, inputs, target, draw_key, rate, weight, update)
        learned = LearnerState(
            params=jax.tree.map(jnp.add, state.params, self.model.unravel(update.step)),
            curvature=update.state,
            carry=_carry(self.model, look, update.step - ahead),
            steps=jax.tree.map(lambda new, old: jnp.where(look.observed, new, old), steps, state.steps),
            outliers=outliers,
            key=next_key,
            prior_params=state.prior_params,
        )
        accepted = info.accepted & self.finite(update)
        rest, before = learned._replace(curvature=()), state._replace(curvature=(), key=next_key)
        kept = jax.tree.map(lambda new, old: new if new is old else jnp.where(accepted, new, old), rest, before)
        kept = kept._replace(curvature=chosen(accepted, update, state.curvature))
        return kept, info._replace(accepted=accepted)

    def finite(self, update: Update) -> Bool[Array, ""]:
        """Whether the step can be taken: sums as matrix products, which run many times faster than a reduction."""
        leaves = [
            leaf.reshape(-1, leaf.shape[-1] if leaf.ndim else 1)
            for leaf in jax.tree.leaves(self.model.unravel(update.step))
        ]
        sums = [jnp.sum(jnp.ones(len(leaf), leaf.dtype) @ leaf) for leaf in leaves]
        return jnp.isfinite(sum(sums, jnp.sum(update.gram)))

    def _relinearized(
        self, state: LearnerState, inputs: Any, target: Array, key: Array, rate: Rate, weight: Array, first: Update
    ) -> tuple[Float[Array, " p"], Look, Update]:
        """The iterated filter: linearise where the last linearisation led, from the same prior, so y counts once."""

        def again(ahead: Float[Array, " p"]) -> tuple[Look, Update]:
            at = jax.tree.map(jnp.add, state.params, self.model.unravel(ahead))
            look = self.look(state, inputs, target, key, at)
            return look, self.update(state, look, target, rate, weight)

        def improve(iteration: Array, ahead: Float[Array, " p"]) -> Float[Array, " p"]:
            return again(ahead)[1].step

        ahead = jax.lax.fori_loop(0, self.control.relinearize - 1, improve, first.step)
        return ahead, *again(ahead)

    def draw_keys(self, state: LearnerState) -> tuple[Array, Array]:
        """The key to go on with and the one to draw with; where nothing is drawn, hashing a new one is not paid for."""
        if not self.fisher.random:
            return state.key, state.key
        next_key, draw_key = jax.random.split(state.key)
        return next_key, draw_key

    def look(self, state: LearnerState, inputs: Any, target: Array, key: Array, at: Params | None = None) -> Look:
        """The observation's quadratic around `at` (`state.params` unless given), seen from `state.params`."""
        outputs = self.model.outputs
        around = self.model.linearize(state.params if at is None else at, state.carry, inputs)
        observed = outputs.observe(around.raw, target)
        factor = self.fisher.factor(outputs, around.raw, observed, target, key)
        score, lift = observed.score, None
        if around.narrowing is None and self._follows_few(factor):
            directions = along_scores(factor, score)
            rows = self._rows(around, directions.basis.T)
            factor, score, lift = directions.factor, directions.score, directions.lift
        else:
            rows = self._rows(around)
        if at is not None:
            score = score - factor @ (factor.T @ (rows @ (ravel(state.params) - ravel(at))))
        if around.narrowing is not None:
            factor, score = blurred(factor, score, around.narrowing.spread)
        seen = Seen(rows=rows, factor=factor, score=score, curved=outputs.curved(around.raw), lift=lift)
        return Look(around=around, seen=seen, log_prob=observed.log_prob, observed=jnp.any(observed.present))

    def _rows(self, around: Linearization, covectors: Float[Array, "m k"] | None = None) -> Rows:
        """The Jacobian, or those combinations of its rows; factored where model and curvature can."""
        if covectors is None:
            covectors = jnp.eye(len(around.raw), dtype=around.raw.dtype)
        if around.factored is not None and getattr(self.curvature, "factored", False):
            return around.factored(covectors)
        return around.pullback(covectors)

    def _follows_few(self, factor: Float[Array, "k r"]) -> bool:
        """Whether score and factor ask for fewer backward passes than there are outputs, and nothing else asks."""
        return factor.shape[1] + 1 < len(factor) and self.robust is None and not self.control.newton

    def rate(self, count: Float[Array, ""], observed: Bool[Array, ""]) -> Rate:
        """Nothing is forgotten where nothing is observed."""
        rate = self.rates.at(count, prior_kept=self.prior_weight is not None)
        return Rate(keep=jnp.where(observed, rate.keep, 1.0), weight=rate.weight)

    def weigh(self, state: LearnerState, seen: Seen, rate: Rate) -> tuple[Array, Array]:
        """What the observation counts for, and how many outliers have now come in a row."""
        if self.robust is None:
            return jnp.ones_like(rate.keep), state.outliers
        gram = self.curvature.quadratic(state.curvature, seen.rows) / rate.keep
        return self.robust.weigh(surprise(seen.score, seen.factor, gram), state.outliers)

    def update(self, state: LearnerState, look: Look, target: Array, rate: Rate, weight: Array) -> Update:
        """What is known after the observation, and the step that goes with it."""
        restore, offset = None, None
        if self.prior_weight is not None:
            # Prop. 4: what forgetting takes from n ln(prior) is given back at once.
            restore = (1 - rate.keep) * self.prior_weight
            offset = ravel(state.params) - ravel(state.prior_params)

        def respond(gram: Float[Array, "k k"]) -> Response:
            answer = self.control.respond(look.seen, gram, self.model.outputs, look.around.raw, target)
            return Response(factor=jnp.sqrt(rate.weight * weight) * answer.factor, push=weight * answer.push)

        return self.curvature.update(
            state.curvature, look.seen.rows, respond, keep=rate.keep, restore=restore, offset=offset
        )


def _raw_cov(around: Linearization, gram: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """What is not known of the raw output: A P A' from theta, and the state's own part."""
    return gram if around.narrowing is None else gram + around.narrowing.spread


def _carry(model: Model, look: Look, step: Float[Array, " p"]) -> Any:
    """The model's memory once theta has moved, and once what the observation says of the state itself is in it."""
    if look.around.narrowing is None:
        return model.correct(look.around.carry, step)
    return look.around.narrowing.narrow(dense_rows(look.seen.rows), look.seen.factor, look.seen.score, step)


def online(
    model: Model,
    *,
    prior_cov: Any = 1.0,
    curvature: Curvature | None = None,
    rates: Rates | None = None,
    fisher: Fisher | None = None,
    prior_weight: ArrayLike | None = None,
    step: StepControl | None = None,
    robust: Robust | None = None,
) -> Learner:
    """An online learner: the extended Kalman filter on the parameters, which is an online natural gradient (Thm 2).

    `prior_cov` is the covariance of theta before any data: a number, variances (a pytree like the parameters, or a
    vector), a matrix, or None (no knowledge; only curvatures that can start so). `rates` says how memory fades; the
    default never forgets. `prior_weight` keeps the prior at the weight of that many observations however much is
    forgotten (Prop. 4). `step` bounds how far one observation may move its own prediction: `step_control()` unless
    given, `step_control(cap=None)` for the paper to the letter. `robust` down-weights outliers; off unless given.

    >>> import jax.numpy as jnp
    >>> import natkal as nk
    >>> model = nk.static_model(lambda w, u: w * u, jnp.zeros(()), nk.families.Gaussian(1.0))
    >>> learner = nk.online(model, prior_cov=1.0)
    >>> state, info = nk.run(learner, learner.init(jnp.zeros(())), jnp.ones(3), jnp.ones(3))
    >>> round(float(state.params), 6)  # the posterior mean after three ones and a unit prior at 0
    0.75
    """
    rates = fading(0.0) if rates is None else rates
    check_prior(model, prior_cov)
    if prior_weight is not None:
        if is_concrete(prior_weight) and not np.asarray(prior_weight) > 0:
            raise ValueError(f"prior_weight: must be positive, got {prior_weight}")
        if not rates.is_kalman:
            raise ValueError("prior_weight: Prop. 4 needs fisher_decay equal to the learning rate; leave it out")
    curvature = dense() if curvature is None else curvature
    check_fits(model, curvature)
    return Learner(
        model=model,
        prior_cov=prior_cov,
        curvature=curvature,
        rates=rates,
        fisher=exact() if fisher is None else fisher,
        prior_weight=prior_weight,
        control=step_control() if step is None else step,
        robust=robust,
    )
