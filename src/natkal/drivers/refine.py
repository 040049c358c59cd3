"""Batch estimation by repeated passes: Gauss-Newton, one pass of the information filter at a time."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature.prior import prior_root
from natkal.drivers.checks import check_stream
from natkal.engine import counter
from natkal.engine.checks import in_precision_of
from natkal.engine.learner import KalmanLearner
from natkal.engine.prior import make_prior
from natkal.engine.state import KalmanState
from natkal.models import dense_rows, ravel
from natkal.typing import Array, Float, Params


class Pass(NamedTuple):
    """A pass under way: the precision so far, and the gradient of the log posterior where all is linearised."""

    state: KalmanState
    gradient: Float[Array, " p"]


def refine(learner: KalmanLearner, params: Params, inputs: Any, targets: Any, *, passes: int = 10) -> KalmanState:
    """The posterior mode given all observations at once, as a learner's state.

    Every pass starts again from the prior (centred on `params`), linearises each observation at the previous pass's
    estimate and moves once, at its end: each observation counts once, and the passes are Gauss-Newton steps (Fisher
    scoring); on a generalised linear model, iteratively reweighted least squares. With `nk.information()` and
    `prior_cov=None` this is least squares or maximum likelihood.
    """
    check_stream(learner, inputs, targets)
    rows = in_precision_of(params, (inputs, targets))
    return _passes(learner.textbook, passes, learner.init(params), *rows)


@partial(jax.jit, static_argnums=(0, 1))
def _passes(learner: KalmanLearner, passes: int, start: KalmanState, inputs: Any, targets: Any) -> KalmanState:
    prior = make_prior(
        learner.model, start.params, learner.prior_cov, scale=learner.rates.initial_scale(None), kept=False
    )

    def pull_of_prior(at: Params) -> Float[Array, " p"]:
        """-Lambda_0 (at - start)."""
        offset = ravel(at) - ravel(start.params)
        if prior.cov is None:
            return jnp.zeros_like(offset)
        root = prior_root(prior.cov)
        return -root.T @ (root @ offset) if root.ndim == 2 else -root * root * offset

    def one_pass(index: Array, previous: KalmanState) -> KalmanState:
        at = previous.params

        def observe(now: Pass, row: Any) -> tuple[Pass, None]:
            key, draw_key = learner.draw_keys(now.state)
            look = learner.look(now.state, row[0], row[1], draw_key)
            steps = counter.increment(now.state.steps)
            rate = learner.rate(counter.value(steps, look.log_prob.dtype), look.observed)
            update = learner.update(now.state, look, row[1], rate, weight=jnp.ones_like(rate.keep))
            state = now.state._replace(curvature=update.state, carry=look.around.carry, steps=steps, key=key)
            return Pass(
                state=state, gradient=rate.keep * now.gradient + look.seen.score @ dense_rows(look.seen.rows)
            ), None

        origin = Pass(state=start._replace(params=at), gradient=pull_of_prior(at))
        end = jax.lax.scan(observe, origin, (inputs, targets))[0]
        step = learner.model.unravel(learner.curvature.solve(end.state.curvature, end.gradient))
        return end.state._replace(params=jax.tree.map(jnp.add, at, step))

    with jax.default_matmul_precision("highest"):
        return jax.lax.fori_loop(0, passes, one_pass, start)
