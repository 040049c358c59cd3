"""Several observations as one step: their Fisher matrices add up, and the parameters move once."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.curvature import Response, chosen
from natkal.engine import counter
from natkal.engine.checks import in_precision_of
from natkal.engine.learner import KalmanLearner
from natkal.engine.prediction import make_prediction
from natkal.engine.rates import Rate
from natkal.engine.state import KalmanState, StepInfo
from natkal.engine.step_control import Seen, capped
from natkal.models import dense_rows, ravel
from natkal.typing import Array, Bool, Float


class Looks(NamedTuple):
    """b observations from one linearisation point: each field with a leading axis of b."""

    seen: Seen
    raw: Float[Array, "b k"]
    log_prob: Float[Array, " b"]
    observed: Bool[Array, " b"]


def check_batchable(learner: Any) -> None:
    """Refuse what only makes sense one observation at a time."""
    if not isinstance(learner, KalmanLearner):
        raise ValueError(f"batch_size: {type(learner).__name__} learns one observation at a time")
    if jax.tree.leaves(learner.model.init_carry(learner.model.params)):
        raise ValueError("batch_size: the model carries a state from one observation to the next; learn one at a time")
    if learner.control.newton or learner.control.relinearize or learner.robust is not None:
        raise ValueError("batch_size: newton, relinearize and robust work one observation at a time; leave them out")


@partial(jax.jit, static_argnums=0)
def scan_batches(
    learner: KalmanLearner, state: KalmanState, inputs: Any, targets: Array
) -> tuple[KalmanState, StepInfo]:
    """Batches in order, all leaves of shape (batches, b, ...)."""
    return jax.lax.scan(lambda state, batch: step_batch(learner, state, *batch), state, (inputs, targets))


def step_batch(learner: KalmanLearner, state: KalmanState, inputs: Any, targets: Any) -> tuple[KalmanState, StepInfo]:
    """One step on b observations.

    Lambda <- prod_i keep_i Lambda + sum_i weight_i V_i V_i',  theta <- theta + Lambda^-1 sum_i A_i' e_i, all linearised
    at the same theta. Rates stay per observation: fading(1e-3) remembers 1,000 observations at any batch size, and in
    Prop. 3 the batch of observations t - b + 1, ..., t has 1 - lambda = prod_i (eta_{i-1}/eta_i - eta_{i-1}).
    """
    inputs, targets = in_precision_of(state.params, (inputs, jnp.asarray(targets)))
    with jax.default_matmul_precision("highest"):
        next_key, draw_key = learner.draw_keys(state)
        looks = _look(learner, state, inputs, targets, draw_key)
        rate, steps = _rates(learner, state, looks)
        seen = _stack(looks.seen, rate.weight)
        restore, offset = None, None
        if learner.prior_weight is not None:
            restore = (1 - rate.keep) * learner.prior_weight
            offset = ravel(state.params) - ravel(state.prior_params)

        def respond(gram: Float[Array, "m m"]) -> Response:
            answer = Response(factor=seen.factor, push=seen.score)
            return answer if learner.control.cap is None else capped(answer, gram, seen, learner.control.cap)

        update = learner.curvature.update(
            state.curvature, seen.rows, respond, keep=rate.keep, restore=restore, offset=offset
        )
        learned = KalmanState(
            params=jax.tree.map(jnp.add, state.params, learner.model.unravel(update.step)),
            curvature=update.state,
            carry=state.carry,
            steps=steps,
            outliers=state.outliers,
            key=state.key,
            prior_params=state.prior_params,
        )
        finite = learner.finite(update)
        rest, before = learned._replace(key=(), curvature=()), state._replace(key=(), curvature=())
        kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), rest, before)
        kept = kept._replace(curvature=chosen(finite, update, state.curvature))
        info = StepInfo(
            log_prob=looks.log_prob,
            prediction=jax.vmap(partial(make_prediction, learner.model.outputs))(
                looks.raw, _own_grams(looks, update.gram)
            ),
            observed=looks.observed,
            accepted=jnp.broadcast_to(finite, looks.observed.shape),
            weight=jnp.ones_like(looks.log_prob),
            keep=jnp.ones_like(looks.log_prob) * rate.keep ** (1 / len(looks.log_prob)),
        )
        return kept._replace(key=next_key), info


def _look(learner: KalmanLearner, state: KalmanState, inputs: Any, targets: Array, key: Array) -> Looks:
    def one(u: Any, y: Array, key: Array) -> Looks:
        look = learner.look(state, u, y, key)
        seen = look.seen._replace(rows=dense_rows(look.seen.rows))
        return Looks(seen=seen, raw=look.around.raw, log_prob=look.log_prob, observed=look.observed)

    return jax.vmap(one)(inputs, targets, jax.random.split(key, len(targets)))


def _rates(learner: KalmanLearner, state: KalmanState, looks: Looks) -> tuple[Rate, counter.Counter]:
    """The keep of the whole batch, and each observation's weight; only observed ones count."""
    numbers = jnp.cumsum(looks.observed.astype(looks.log_prob.dtype))
    before = counter.value(state.steps, looks.log_prob.dtype)
    rates = jax.vmap(learner.rate)(jnp.maximum(before + numbers, 1.0), looks.observed)
    steps = jax.lax.fori_loop(0, jnp.sum(looks.observed), lambda _, count: counter.increment(count), state.steps)
    return Rate(keep=jnp.prod(rates.keep), weight=rates.weight), steps


def _stack(seen: Seen, weights: Float[Array, " b"]) -> Seen:
    """b observations as one: rows one after the other, factors and lifts as blocks."""
    count, rows = seen.score.shape
    jacobians: Any = seen.rows
    return Seen(
        rows=jacobians.reshape(count * rows, -1),
        factor=_block_diagonal(seen.factor * jnp.sqrt(weights)[:, None, None]),
        score=seen.score.reshape(-1),
        curved=seen.curved.reshape(-1),
        lift=None if seen.lift is None else _block_diagonal(seen.lift),
    )


def _block_diagonal(blocks: Float[Array, "b m r"]) -> Float[Array, "n s"]:
    count, rows, columns = blocks.shape
    spread = jnp.eye(count, dtype=blocks.dtype)[:, None, :, None] * blocks[:, :, None, :]
    return spread.reshape(count * rows, count * columns)


def _own_grams(looks: Looks, gram: Float[Array, "n n"]) -> Float[Array, "b k k"] | None:
    """Each observation's own block of the gram matrix, where its rows are the outputs themselves."""
    if looks.seen.lift is not None:
        return None
    count, rows = looks.seen.score.shape
    return jnp.einsum("imin->imn", gram.reshape(count, rows, count, rows))
