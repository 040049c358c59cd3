"""The general filter of Def. 5 on the safe forms: a state that moves, seen through any family."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from natkal.compiling.policy import jit_method
from natkal.curvature import Curvature, Prior, Response, square_root
from natkal.engine.checks import in_precision_of
from natkal.engine.prediction import FilterPrediction, make_prediction
from natkal.engine.step_control import Seen, StepControl
from natkal.engine.step_control import step_control as default_step_control
from natkal.families.base import Family
from natkal.typing import Array, Bool, Float


@runtime_checkable
class MovingCurvature(Curvature, Protocol):
    """A curvature that can also follow a transition P <- F P F' + Q: dense and square-root do."""

    def transition(self, state: Any, jacobian: Float[Array, "p p"], noise: Float[Array, "p p"] | None) -> Any:
        """P <- F P F' + Q."""
        ...


class FilterState(NamedTuple):
    """The estimate s_t and, in the curvature's form, its covariance P_t."""

    estimate: Float[Array, " n"]
    curvature: Any


class FilterInfo(NamedTuple):
    """Log p(y_t) before it was used, the prediction made for it, and whether a finite step was taken."""

    log_prob: Float[Array, ""]
    prediction: FilterPrediction
    accepted: Bool[Array, ""]


@dataclasses.dataclass(frozen=True, eq=False)
class StateFilter:
    """Pure functions `init`, `predict` and `step`; build it with `state_filter`."""

    transition: Callable[[Array, Any], Array]
    readout: Callable[[Array, Any], Array]
    family: Family
    process_noise: Array | None
    curvature: MovingCurvature
    control: StepControl

    def init(self, estimate: Array, cov: Array) -> FilterState:
        """s_0 and P_0 (a matrix, or a vector of variances)."""
        estimate, cov = jnp.asarray(estimate), jnp.asarray(cov)
        if estimate.ndim != 1 or cov.shape not in (estimate.shape, estimate.shape * 2):
            raise ValueError(f"cov: shape {cov.shape} does not fit an estimate of shape {estimate.shape}")
        layout = (("state", estimate.shape),)
        return FilterState(estimate=estimate, curvature=self.curvature.init(Prior(cov=cov, kept=None, layout=layout)))

    def covariance(self, state: FilterState) -> Float[Array, "n n"]:
        """P_t in full."""
        return self.curvature.to_dense(state.curvature)

    @jit_method
    def predict(self, state: FilterState, inputs: Any) -> FilterPrediction:
        """The predictive law of the next y."""
        moved = self._moved(state, inputs)
        raw, rows = self._look(moved.estimate, inputs)
        return make_prediction(self.family, raw, self.curvature.quadratic(moved.curvature, rows))

    @jit_method
    def step(self, state: FilterState, inputs: Any, target: Any) -> tuple[FilterState, FilterInfo]:
        """Transition, then observation; a NaN target is only predicted, and the state moves on."""
        inputs, target = in_precision_of(state.estimate, (inputs, jnp.asarray(target)))
        moved = self._moved(state, inputs)
        raw, rows = self._look(moved.estimate, inputs)
        observed = self.family.observe(raw, target)
        seen = Seen(rows=rows, factor=observed.root, score=observed.score, curved=self.family.curved(raw))

        def respond(gram: Float[Array, "k k"]) -> Response:
            return self.control.respond(seen, gram, self.family, raw, target)

        update = self.curvature.update(moved.curvature, rows, respond, keep=jnp.ones((), raw.dtype))
        learned = FilterState(estimate=moved.estimate + update.step, curvature=update.state)
        finite = jnp.isfinite(jnp.sum(update.step)) & jnp.all(jnp.isfinite(update.gram))
        info = FilterInfo(
            log_prob=observed.log_prob, prediction=make_prediction(self.family, raw, update.gram), accepted=finite
        )
        return jax.tree.map(lambda new, old: jnp.where(finite, new, old), learned, moved), info

    def _moved(self, state: FilterState, inputs: Any) -> FilterState:
        """s <- f(s, u), P <- F P F' + Q."""
        jacobian = jax.jacfwd(self.transition)(state.estimate, inputs)
        return FilterState(
            estimate=self.transition(state.estimate, inputs),
            curvature=self.curvature.transition(state.curvature, jacobian, self.process_noise),
        )

    def _look(self, estimate: Array, inputs: Any) -> tuple[Float[Array, " k"], Float[Array, "k n"]]:
        def raw(estimate: Array) -> Array:
            return jnp.reshape(self.readout(estimate, inputs), (-1,))

        return raw(estimate), jax.jacrev(raw)(estimate)


def state_filter(
    transition: Callable[[Array, Any], Array],
    readout: Callable[[Array, Any], Array],
    family: Family,
    *,
    process_noise: Array | None = None,
    curvature: MovingCurvature | None = None,
    step_control: StepControl | None = None,
) -> StateFilter:
    """The extended Kalman filter of Def. 5 for `s_t = transition(s_{t-1}, u_t) + N(0, Q)`, seen through any family.

    `readout(s, u)` gives the family's unconstrained output (the mean of a `Gaussian`, the logits of a `Categorical`).
    The covariance is kept as a square root unless another `curvature` is given.

    >>> import jax.numpy as jnp
    >>> import natkal as nk
    >>> walk = nk.state_filter(lambda s, u: s, lambda s, u: s, nk.families.Gaussian(1.0), process_noise=jnp.eye(1))
    >>> state, _ = walk.step(walk.init(jnp.zeros(1), jnp.ones(1)), None, 3.0)
    >>> round(float(state.estimate[0]), 6)  # P = 1 + 1 before, gain 2/3
    2.0
    """
    return StateFilter(
        transition=transition,
        readout=readout,
        family=family,
        process_noise=process_noise,
        curvature=square_root() if curvature is None else curvature,
        control=default_step_control() if step_control is None else step_control,
    )
