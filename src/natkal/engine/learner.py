"""The step, once: any model, family, curvature, rate, Fisher estimate and step control."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from natkal.compiling.policy import jit_method
from natkal.curvature import Curvature, Response, Update, chosen, dense
from natkal.engine import counter
from natkal.engine.blur import blurred, widened
from natkal.engine.checks import check_params, check_parts, in_precision_of
from natkal.engine.directions import along_scores
from natkal.engine.fisher import Fisher, exact
from natkal.engine.growth import embedded
from natkal.engine.joint import JointLaw, reward_moments
from natkal.engine.plan import check_fits
from natkal.engine.prediction import FilterPrediction, make_prediction
from natkal.engine.prior import check_prior, make_prior
from natkal.engine.rates import Rate, Rates, fading
from natkal.engine.robust import Outliers, Robust, no_outliers, surprise
from natkal.engine.state import KalmanState, StepInfo
from natkal.engine.step_control import Seen, StepControl
from natkal.engine.step_control import step_control as default_step_control
from natkal.families.base import Family
from natkal.families.checks import is_concrete
from natkal.models import Linearization, Model, Rows, ravel
from natkal.rows import reaches_every_leaf
from natkal.typing import Array, Bool, Float, Params


class Look(NamedTuple):
    """One observation, looked at from one linearisation point."""

    around: Linearization
    seen: Seen
    log_prob: Float[Array, ""]
    observed: Bool[Array, ""]


@dataclasses.dataclass(frozen=True, eq=False)
class KalmanLearner:
    """Pure functions `init`, `predict` and `step` on a pytree state; build it with `online`."""

    model: Model
    prior_cov: Any
    curvature: Curvature
    rates: Rates
    fisher: Fisher
    prior_weight: ArrayLike | None
    control: StepControl
    robust: Robust | None

    @property
    def outputs(self) -> Family:
        """The law of an observation."""
        return self.model.outputs

    @property
    def size(self) -> int:
        """How many numbers are learned."""
        return self.model.size

    def __repr__(self) -> str:
        parts = f"{type(self.model).__name__} of {self.model.size:,} parameters, {self.outputs}"
        return f"KalmanLearner({parts}, {type(self.curvature).__name__}, {type(self.rates).__name__})"

    def init(self, params: Params | None = None, key: Array | None = None) -> KalmanState:
        """The state before any observation, centred on `params`; `key` seeds a sampled Fisher matrix."""
        params = self.model.params if params is None else params
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
        return KalmanState(
            params=params,
            curvature=self.curvature.init(prior),
            carry=self.model.init_carry(params),
            steps=counter.zero(),
            outliers=no_outliers(ravel(params).dtype),
            key=jax.random.key(0) if key is None else key,
            prior_params=None if self.prior_weight is None else params,
        )

    @jit_method
    def predict(self, state: KalmanState, inputs: Any) -> FilterPrediction:
        """The predictive law of the next y for these inputs; learns nothing."""
        with jax.default_matmul_precision("highest"):
            around = self.model.linearize(state.params, state.carry, in_precision_of(state.params, inputs))
            gram = self.curvature.quadratic(state.curvature, self._rows(around))
            return make_prediction(self.model.outputs, around.raw, widened(gram, around.spread))

    @jit_method
    def step(self, state: KalmanState, inputs: Any, target: Any) -> tuple[KalmanState, StepInfo]:
        """Predict, observe, learn: the state after one observation and what it told. A NaN target is only predicted."""
        inputs, target = in_precision_of(state.params, (inputs, jnp.asarray(target)))
        with jax.default_matmul_precision("highest"):
            return self._learn(state, inputs, target)

    def restart(self, state: KalmanState) -> KalmanState:
        """The learner at the start of a new sequence: the model's memory starts again, all that was learned stays."""
        return state._replace(carry=self.model.restart(state.params, state.carry))

    def forecast(
        self, state: KalmanState, inputs: Any, horizon: int, feed: Callable[[Array], Any] | None = None
    ) -> FilterPrediction:
        """The next `horizon` observations, blurred by what is not known of parameters and state; learns nothing.

        `inputs` has one row for each of them. With `feed`, it is the first row alone, and `feed(T)` makes each later
        one from the observation before it, of which the expected T(y) is known: `lambda mean: mean` for a series that
        is fed its own last value. Each observation's own noise then counts as well.
        """
        from natkal.engine.forecast import forecast

        return forecast(self, state, inputs, horizon, feed)

    def start_path(self, state: KalmanState, key: Array) -> Any:
        """The start of one possible future: a deviation of the parameters that stays the same all along."""
        from natkal.engine.forecast import start_path

        return start_path(self, state, key)

    def follow(
        self, state: KalmanState, path: Any, inputs: Any, scale: Any, key: Array
    ) -> tuple[Any, FilterPrediction]:
        """One step of a path: the law of y given its parameters, P in units of `scale`, and the path after it."""
        from natkal.engine.forecast import follow

        return follow(self, state, path, inputs, scale, key)

    def embedded(self, state: KalmanState, larger: "KalmanLearner", fresh: KalmanState) -> KalmanState:
        """The state as one of a filter that takes more inputs or gives more outputs, whose start is `fresh`."""
        return embedded(self, larger, state, fresh)

    def in_fleet(self) -> "KalmanLearner":
        """The same learner as it is best kept when many of it run side by side under `vmap`."""
        rows = self.model.outputs.raw_dim
        curvature = self.curvature.in_fleet(rows, kept_prior=self.prior_weight is not None)
        return self if curvature is self.curvature else dataclasses.replace(self, curvature=curvature)

    def recast(self, state: KalmanState, to: "KalmanLearner") -> KalmanState:
        """The same state with the covariance kept as another form of this learner keeps it."""
        return state._replace(curvature=self.curvature.recast(state.curvature, to.curvature, self.model.size))

    def covariance(self, state: KalmanState) -> Float[Array, "p p"]:
        """The posterior covariance P of the flat parameters, in full."""
        return self.curvature.to_dense(state.curvature)

    def believing(self, state: KalmanState, flat: Float[Array, " p"], cov: Float[Array, "p p"]) -> KalmanState:
        """The state with N(flat, cov) in the place of what was known of the parameters; dense curvature only."""
        if self.prior_weight is not None:
            raise ValueError("prior_weight: the prior that is kept cannot be replaced; leave it out")
        return state._replace(params=self.model.unravel(flat), curvature=self.curvature.replaced(state.curvature, cov))

    def sample(self, state: KalmanState, key: Array) -> Params:
        """Parameters drawn from the posterior N(params, P)."""
        deviation = self.model.unravel(self.curvature.sample(state.curvature, key))
        return jax.tree.map(jnp.add, state.params, deviation)

    @property
    def joint_sizes(self) -> tuple[int, ...]:
        """One law."""
        return (self.model.size,)

    def joint(self, state: KalmanState, inputs: Any) -> JointLaw:
        """The joint law of the outputs of several arms; for an `ArmsModel`."""
        with jax.default_matmul_precision("highest"):
            inputs = in_precision_of(state.params, inputs)
            found = self.model.every_arm(  # pyright: ignore[reportAttributeAccessIssue]
                state.params, state.carry, inputs, factored=self.curvature.factored
            )
            arms, outputs = found.raw.shape
            gram = self.curvature.quadratic(state.curvature, found.rows)
            own = gram.reshape(arms, outputs, arms, outputs)[:, 0, :, 0]
        mean, noise = reward_moments(self.outputs, found.raw)
        return JointLaw(
            log_weights=jnp.zeros(1, found.raw.dtype),
            location=found.raw[None, :, 0],
            cov=own[None],
            mean=mean[None],
            noise=noise[None],
        )

    def inflate(self, state: KalmanState, factor: Array) -> KalmanState:
        """The state with P times `factor`: an observation that says nothing, after forgetting 1 - 1/factor."""
        flat = ravel(state.params)
        nothing = Response(factor=jnp.zeros((1, 1), flat.dtype), push=jnp.zeros(1, flat.dtype))
        update = self.curvature.update(
            state.curvature, jnp.zeros((1, flat.size), flat.dtype), lambda gram: nothing, keep=1 / factor
        )
        return state._replace(curvature=update.state)

    @functools.cached_property
    def textbook(self) -> "KalmanLearner":
        """The same learner without step control or down-weighting: the paper to the letter."""
        return dataclasses.replace(self, control=default_step_control(cap=None), robust=None)

    def _learn(self, state: KalmanState, inputs: Any, target: Array) -> tuple[KalmanState, StepInfo]:
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
                widened(update.gram, look.around.spread) if look.seen.lift is None else None,
            ),
            observed=look.observed,
            # One bad value never poisons the state: a step that is not finite is not taken.
            accepted=self.finite(update) & jnp.isfinite(look.log_prob),
            weight=weight,
            keep=rate.keep,
            reached=reaches_every_leaf(look.seen.rows, tuple(leaf.size for leaf in jax.tree.leaves(state.params))),
        )
        ahead = jnp.zeros_like(update.step)
        if self.control.relinearize:
            ahead, look, update = self._relinearized(state, inputs, target, draw_key, rate, weight, update)
        learned = KalmanState(
            params=jax.tree.map(jnp.add, state.params, self.model.unravel(update.step)),
            curvature=update.state,
            carry=look.around.correct(update.step - ahead, look.seen.rows, look.seen.factor, look.seen.score),
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
        self, state: KalmanState, inputs: Any, target: Array, key: Array, rate: Rate, weight: Array, first: Update
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

    def draw_keys(self, state: KalmanState) -> tuple[Array, Array]:
        """The key to go on with and the one to draw with; where nothing is drawn, hashing a new one is not paid for."""
        if not self.fisher.random:
            return state.key, state.key
        next_key, draw_key = jax.random.split(state.key)
        return next_key, draw_key

    def look(self, state: KalmanState, inputs: Any, target: Array, key: Array, at: Params | None = None) -> Look:
        """The observation's quadratic around `at` (`state.params` unless given), seen from `state.params`."""
        outputs = self.model.outputs
        around = self.model.linearize(state.params if at is None else at, state.carry, inputs)
        observed = outputs.observe(around.raw, target)
        factor = self.fisher.factor(outputs, around.raw, observed, target, key)
        score, lift = observed.score, None
        if around.spread is None and self._follows_few(factor):
            directions = along_scores(factor, score)
            rows = self._rows(around, directions.basis.T)
            factor, score, lift = directions.factor, directions.score, directions.lift
        else:
            rows = self._rows(around)
        if at is not None:
            score = score - factor @ (factor.T @ (rows @ (ravel(state.params) - ravel(at))))
        factor, score = blurred(factor, score, around.spread)
        seen = Seen(rows=rows, factor=factor, score=score, curved=outputs.curved(around.raw), lift=lift)
        return Look(around=around, seen=seen, log_prob=observed.log_prob, observed=jnp.any(observed.present))

    def _rows(self, around: Linearization, covectors: Float[Array, "m k"] | None = None) -> Rows:
        """The Jacobian, or those combinations of its rows; factored where model and curvature can."""
        if covectors is None:
            covectors = jnp.eye(len(around.raw), dtype=around.raw.dtype)
        if self.curvature.factored and around.factored is not None:
            return around.factored(covectors)
        return around.pullback(covectors)

    def _follows_few(self, factor: Float[Array, "k r"]) -> bool:
        """Whether score and factor ask for fewer backward passes than there are outputs, and nothing else asks."""
        return factor.shape[1] + 1 < len(factor) and self.robust is None and not self.control.newton

    def rate(self, count: Float[Array, ""], observed: Bool[Array, ""]) -> Rate:
        """Nothing is forgotten where nothing is observed."""
        rate = self.rates.at(count, prior_kept=self.prior_weight is not None)
        return Rate(keep=jnp.where(observed, rate.keep, 1.0), weight=rate.weight)

    def weigh(self, state: KalmanState, seen: Seen, rate: Rate) -> tuple[Array, Outliers]:
        """What the observation counts for, and how many outliers have now come in a row."""
        if self.robust is None:
            return jnp.ones_like(rate.keep), state.outliers
        gram = self.curvature.quadratic(state.curvature, seen.rows) / rate.keep
        return self.robust.weigh(surprise(seen.score, seen.factor, gram), state.outliers)

    def update(self, state: KalmanState, look: Look, target: Array, rate: Rate, weight: Array) -> Update:
        """What is known after the observation, and the step that goes with it."""
        restore, offset = None, None
        if self.prior_weight is not None:
            # Prop. 4: what forgetting takes from n ln(prior) is given back at once.
            restore = (1 - rate.keep) * self.prior_weight
            offset = ravel(state.params) - ravel(state.prior_params)

        def respond(gram: Float[Array, "k k"]) -> Response:
            raw = look.around.raw
            return self.control.respond(look.seen, gram, self.model.outputs, raw, target, rate.weight, weight)

        return self.curvature.update(
            state.curvature, look.seen.rows, respond, keep=rate.keep, restore=restore, offset=offset
        )


def online(
    model: Model,
    *,
    prior_cov: Any = 1.0,
    curvature: Curvature | None = None,
    rates: Rates | None = None,
    fisher: Fisher | None = None,
    prior_weight: ArrayLike | None = None,
    step_control: StepControl | None = None,
    robust: Robust | None = None,
) -> KalmanLearner:
    """An online learner: the extended Kalman filter on the parameters, which is an online natural gradient (Thm 2).

    `prior_cov` is the covariance of theta before any data: a number, variances (a pytree like the parameters, or a
    vector), a matrix, or None (no knowledge; only curvatures that can start so). `rates` says how memory fades; the
    default never forgets. `prior_weight` keeps the prior at the weight of that many observations however much is
    forgotten (Prop. 4). `step_control` bounds how far one observation may move its own prediction:
    `nk.step_control()` unless given, `nk.step_control(cap=None)` for the paper to the letter. `robust` down-weights
    outliers; off unless given.

    >>> import jax.numpy as jnp
    >>> import natkal as nk
    >>> model = nk.static_model(lambda w, u: w * u, jnp.zeros(()), nk.families.Gaussian(1.0))
    >>> learner = nk.online(model, prior_cov=1.0)
    >>> state, info = nk.run(learner, learner.init(jnp.zeros(())), jnp.ones(3), jnp.ones(3))
    >>> round(float(state.params), 6)  # the posterior mean after three ones and a unit prior at 0
    0.75
    """
    rates = fading(0.0) if rates is None else rates
    curvature = dense() if curvature is None else curvature
    check_parts(
        model=(model, Model, "nk.static_model(...) or nk.recurrent_model(...)"),
        rates=(rates, Rates, "nk.fading(...) or nk.learning_rate(...)"),
        curvature=(curvature, Curvature, "one such as nk.diagonal()"),
    )
    check_prior(model, prior_cov)
    if prior_weight is not None:
        if is_concrete(prior_weight) and not np.asarray(prior_weight) > 0:
            raise ValueError(f"prior_weight: must be positive, got {prior_weight}")
        if not rates.is_kalman:
            raise ValueError("prior_weight: Prop. 4 needs fisher_decay equal to the learning rate; leave it out")
    check_fits(model, curvature)
    return KalmanLearner(
        model=model,
        prior_cov=prior_cov,
        curvature=curvature,
        rates=rates,
        fisher=exact() if fisher is None else fisher,
        prior_weight=prior_weight,
        control=default_step_control() if step_control is None else step_control,
        robust=robust,
    )
