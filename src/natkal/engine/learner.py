"""The step, once: any model, family, curvature, rate and Fisher estimate."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from natkal.curvature import Curvature, Response, dense
from natkal.engine import counter
from natkal.engine.blur import blurred
from natkal.engine.checks import check_observation, check_params, explain_shapes
from natkal.engine.counter import Counter
from natkal.engine.fisher import Fisher, exact
from natkal.engine.prior import check_prior, make_prior
from natkal.engine.rates import Rates, fading
from natkal.families.base import Family
from natkal.families.checks import is_concrete
from natkal.models import Linearization, Model, ravel
from natkal.typing import Array, Float, Params


class LearnerState(NamedTuple):
    """All a learner knows. `prior_params` is the prior's centre where the prior is kept, None elsewhere."""

    params: Params
    curvature: Any
    carry: Any
    steps: Counter
    key: Array
    prior_params: Params | None


class Prediction(NamedTuple):
    """What is expected of y before it is seen.

    `natural` and `mean` are the plug-in law's parameters. `natural_cov` is the covariance of the natural parameters
    that comes from not knowing theta, and `total_cov` that of T(y) from both sources, the law's own noise and theta.
    """

    natural: Float[Array, " k"]
    mean: Float[Array, " k"]
    natural_cov: Float[Array, "k k"]
    total_cov: Float[Array, "k k"]


class StepInfo(NamedTuple):
    """What one observation told: its log-probability before learning from it, and the prediction made for it."""

    log_prob: Float[Array, ""]
    prediction: Prediction


@dataclasses.dataclass(frozen=True, eq=False)
class Learner:
    """Pure functions `init`, `predict` and `step` on a pytree state; build it with `online`."""

    model: Model
    prior_cov: Any
    curvature: Curvature
    rates: Rates
    fisher: Fisher
    prior_weight: ArrayLike | None

    def init(self, params: Params, key: Array | None = None) -> LearnerState:
        """The state before any observation, centred on `params`; `key` seeds a sampled Fisher matrix."""
        check_params(self.model, params)
        prior = make_prior(
            self.model,
            params,
            self.prior_cov,
            scale=self.rates.initial_scale(self.prior_weight),
            kept=self.prior_weight is not None,
        )
        params = jax.tree.map(jnp.asarray, params)
        return LearnerState(
            params=params,
            curvature=self.curvature.init(prior),
            carry=self.model.init_carry(params),
            steps=counter.zero(),
            key=jax.random.key(0) if key is None else key,
            prior_params=None if self.prior_weight is None else params,
        )

    def predict(self, state: LearnerState, inputs: Any) -> Prediction:
        """What is expected of the next y for these inputs; learns nothing."""
        check_observation(self.model, inputs)
        with explain_shapes(self.model, state.params, state.carry, inputs):
            return self._predict(state, inputs)

    def step(self, state: LearnerState, inputs: Any, target: Any) -> tuple[LearnerState, StepInfo]:
        """Predict, observe, learn: the state after one observation and what it told."""
        check_observation(self.model, inputs, target)
        with explain_shapes(self.model, state.params, state.carry, inputs):
            return self._step(state, inputs, target)

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

    @functools.cached_property
    def _predict(self):
        return jax.jit(self.predict_unchecked)

    @functools.cached_property
    def _step(self):
        return jax.jit(self.step_unchecked)

    def predict_unchecked(self, state: LearnerState, inputs: Any) -> Prediction:
        """`predict` on values already checked, for use inside other transformations."""
        with jax.default_matmul_precision("highest"):
            around = self.model.linearize(state.params, state.carry, inputs)
            gram = self.curvature.quadratic(state.curvature, _jacobian(around))
            return _prediction(self.model.outputs, around.raw, _raw_cov(around, gram))

    def step_unchecked(
        self, state: LearnerState, inputs: Any, target: Any, at: Params | None = None
    ) -> tuple[LearnerState, StepInfo]:
        """`step` on values already checked, for use inside other transformations.

        `at` is where to linearise, `state.params` unless given. The observation's log-likelihood is then the quadratic
        `e' x - x' C C' x / 2` in the raw output's displacement x = A (theta - at), whatever theta is now.
        """
        with jax.default_matmul_precision("highest"):
            return self._learn(state, inputs, jnp.asarray(target), at)

    def _learn(
        self, state: LearnerState, inputs: Any, target: Array, at: Params | None
    ) -> tuple[LearnerState, StepInfo]:
        outputs = self.model.outputs
        around = self.model.linearize(state.params if at is None else at, state.carry, inputs)
        jacobian = _jacobian(around)
        steps = counter.increment(state.steps)
        rate = self.rates.at(counter.value(steps, around.raw.dtype), prior_kept=self.prior_weight is not None)

        next_key, draw_key = jax.random.split(state.key)
        score = outputs.score(around.raw, target)
        factor = self.fisher.factor(outputs, around.raw, score, draw_key)
        if at is not None:
            score = score - factor @ (factor.T @ (jacobian @ (ravel(state.params) - ravel(at))))

        if around.narrowing is not None:
            factor, score = blurred(factor, score, around.narrowing.spread)

        restore, offset = None, None
        if self.prior_weight is not None:
            # Prop. 4: what forgetting takes from n ln(prior) is given back at once.
            restore = (1 - rate.keep) * self.prior_weight
            offset = ravel(state.params) - ravel(state.prior_params)
        update = self.curvature.update(
            state.curvature,
            jacobian,
            lambda gram: Response(factor=jnp.sqrt(rate.weight) * factor, push=score),
            keep=rate.keep,
            restore=restore,
            offset=offset,
        )
        if around.narrowing is None:
            carry = self.model.correct(around.carry, update.step)
        else:
            carry = around.narrowing.narrow(jacobian, factor, score, update.step)
        new_state = LearnerState(
            params=jax.tree.map(jnp.add, state.params, self.model.unravel(update.step)),
            curvature=update.state,
            carry=carry,
            steps=steps,
            key=next_key,
            prior_params=state.prior_params,
        )
        info = StepInfo(
            log_prob=outputs.log_prob(outputs.link(around.raw), target),
            prediction=_prediction(outputs, around.raw, _raw_cov(around, update.gram)),
        )
        return new_state, info


def _jacobian(around: Linearization) -> Float[Array, "k p"]:
    return around.pullback(jnp.eye(len(around.raw), dtype=around.raw.dtype))


def _raw_cov(around: Linearization, gram: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """What is not known of the raw output: A P A' from theta, and the state's own part."""
    return gram if around.narrowing is None else gram + around.narrowing.spread


def _prediction(outputs: Family, raw: Float[Array, " k"], raw_cov: Float[Array, "k k"]) -> Prediction:
    natural, push = jax.linearize(outputs.link, raw)
    link_jacobian = jax.vmap(push, out_axes=1)(jnp.eye(len(raw), dtype=raw.dtype))
    natural_cov = link_jacobian @ raw_cov @ link_jacobian.T
    noise_cov = outputs.cov(natural)
    return Prediction(
        natural=natural,
        mean=outputs.mean(natural),
        natural_cov=natural_cov,
        total_cov=noise_cov + noise_cov @ natural_cov @ noise_cov,
    )


def online(
    model: Model,
    *,
    prior_cov: Any = 1.0,
    curvature: Curvature | None = None,
    rates: Rates | None = None,
    fisher: Fisher | None = None,
    prior_weight: ArrayLike | None = None,
) -> Learner:
    """An online learner: the extended Kalman filter on the parameters, which is an online natural gradient (Thm 2).

        `prior_cov` is the covariance of theta before any data: a number, variances (a pytree like the parameters, or a
        vector), a matrix, or None (no knowledge; only curvatures that can start so). `rates` says how memory fades; the
        default never forgets. `prior_weight` keeps the prior at the weight of that many observations however much is
        forgotten (Prop. 4).

        >>> import jax.numpy as jnp
import numpy as np
    from jax.typing import ArrayLike
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
            raise ValueError(
                "prior_weight: Prop. 4 needs fisher_decay equal to the learning rate; leave fisher_decay out"
            )
    return Learner(
        model=model,
        prior_cov=prior_cov,
        curvature=dense() if curvature is None else curvature,
        rates=rates,
        fisher=exact() if fisher is None else fisher,
        prior_weight=prior_weight,
    )
