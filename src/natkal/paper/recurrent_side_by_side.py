"""The recurrent half of the paper on one stream, side by side in one scan, each step compared with its theorem."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.models import RecurrentModel
from natkal.paper import dictionary
from natkal.paper.claims import Deviation, deviation
from natkal.paper.decomposition import Decomposed, compose, decompose, observe, transition
from natkal.paper.dual import dual_kalman
from natkal.paper.joint import covariance_from_fisher, joint_kalman
from natkal.paper.kalman import KalmanState, noise_cov
from natkal.paper.rtrl import advance_sensitivity, estimated_gradient, natural_gradient_rtrl
from natkal.paper.schedules import Schedule, tabulate
from natkal.paper.side_by_side import Comparison, Findings
from natkal.paper.solve import inverse
from natkal.paper.state_space import (
    StateSpace,
    cell_and_readout,
    initial_sensitivity,
    initial_state,
    observation_derivatives,
    transition_derivatives,
    whole_state,
    with_initial_state,
)
from natkal.typing import Array, Float

STATE_VARIANCE, PROCESS_NOISE = 0.1, 0.01
"""W_0 and Q, times the identity, where a statement is about an uncertain state."""


class RecurrentSetting(NamedTuple):
    """What every comparison starts from."""

    model: RecurrentModel
    params: Float[Array, " p"]
    prior_cov: Float[Array, "p p"]


def theorem(at: RecurrentSetting, schedules: Sequence[Schedule], steps: int) -> Comparison:
    """Thm 12 at every rate: fading joint filter = RTRL + natural gradient + state correction; and Cor. 15."""
    space, size = whole_state(at.model), at.params.size
    start = initial_state(at.model)
    etas = jnp.stack([tabulate(schedule, steps) for schedule in schedules])
    lambdas = jnp.stack([dictionary.fading_from_learning_rate(row) for row in etas])

    def begin(eta: Array) -> Any:
        joint = joint_kalman(space, size)
        natural = natural_gradient_rtrl(space, lambda t: eta[t])
        return (
            joint.init(jnp.concatenate([at.params, start]), jnp.pad(at.prior_cov, (0, start.size))),
            natural.init(at.params, start, dictionary.prior_fisher_from_cov(at.prior_cov, eta[0])),
        )

    def advance(eta: Array, fadings: Array, states: Any, u: Any, y: Any) -> tuple[Any, tuple[Deviation, Array]]:
        joint = joint_kalman(space, size, lambda t: fadings[t - 1]).step(states[0], u, y)
        natural = natural_gradient_rtrl(space, lambda t: eta[t]).step(states[1], u, y)
        pair = jnp.concatenate([natural.params, natural.state])
        cov = covariance_from_fisher(inverse(natural.fisher), natural.sensitivity, eta[natural.steps])
        left = decompose(joint.cov, size).state_cov
        found = Deviation(deviation(pair, joint.estimate), deviation(cov, joint.cov))
        return (joint, natural), (found, jnp.max(jnp.abs(left)) / jnp.max(jnp.abs(joint.cov[size:, size:])))

    def step(states: Any, u: Any, y: Any, others: Mapping[str, Any]) -> tuple[Any, Findings]:
        moved, (found, left) = jax.vmap(advance, in_axes=(0, 0, 0, None, None))(etas, lambdas, states, u, y)
        return moved, {"Thm 12": found, "Cor. 15": Deviation(matrix=jnp.max(left))}

    return Comparison(jax.vmap(begin)(etas), step)


def initial_state_as_parameter(at: RecurrentSetting, schedule: Schedule) -> Comparison:
    """theta+init: Thm 12 on (theta, y-hat_0) with G_0 = (0, Id) = the joint filter on (theta, y-hat) with W_0 > 0."""
    space, size, start = whole_state(at.model), at.params.size, initial_state(at.model)
    extended = with_initial_state(space, size)
    uncertain = STATE_VARIANCE * jnp.eye(start.size)
    joint = joint_kalman(space, size, lambda t: 1 - (schedule(t - 1) / schedule(t) - schedule(t - 1)))  # Prop. 3
    natural = natural_gradient_rtrl(extended, schedule)
    prior = jax.scipy.linalg.block_diag(at.prior_cov, uncertain)

    def step(states: Any, u: Any, y: Any, others: Mapping[str, Any]) -> tuple[Any, Findings]:
        filtered, learned = joint.step(states[0], u, y), natural.step(states[1], u, y)
        pair = jnp.concatenate([learned.params[:size], learned.state])
        cov = covariance_from_fisher(inverse(learned.fisher), learned.sensitivity, schedule(learned.steps))
        without_start = jnp.concatenate([jnp.arange(size), size + start.size + jnp.arange(start.size)])
        marginal = cov[without_start[:, None], without_start[None, :]]
        found = Deviation(deviation(pair, filtered.estimate), deviation(marginal, filtered.cov))
        return (filtered, learned), {"theta+init": found}

    return Comparison(
        (
            joint.init(jnp.concatenate([at.params, start]), prior),
            natural.init(
                jnp.concatenate([at.params, start]),
                start,
                dictionary.prior_fisher_from_cov(prior, schedule(0)),
                initial_sensitivity(size, start.size),
            ),
        ),
        step,
    )


def uncertain_state(at: RecurrentSetting) -> Comparison:
    """The joint filter with W_0 > 0 and process noise on the state: Lemmas 13 and 14, and the dual filter.

    The state is the model's own here, seen in part and through parameters.
    """
    space, size = cell_and_readout(at.model), at.params.size
    start = initial_state(at.model)[: at.model.system.state_size]
    W, Q = STATE_VARIANCE * jnp.eye(start.size), PROCESS_NOISE * jnp.eye(start.size)
    joint = joint_kalman(space, size, Q=jnp.pad(Q, (size, 0)))
    dual = dual_kalman(space, Q)

    def step(states: Any, u: Any, y: Any, others: Mapping[str, Any]) -> tuple[Any, Findings]:
        before = states[0]
        predicted = joint.kalman.transition(before, u)
        after = joint.kalman.observe(predicted, u, y)
        coupled = dual.step(states[1], u, y)
        both = Decomposed(cov=coupled.cov, sensitivity=coupled.sensitivity, state_cov=coupled.state_cov)
        pair = jnp.concatenate([coupled.params, coupled.state])
        findings = {
            **_lemmas(space, before, predicted, after, size, Q, u),
            "Sec. 3.2": Deviation(deviation(pair, after.estimate), deviation(compose(both), after.cov)),
        }
        return (after, coupled), findings

    return Comparison(
        (
            joint.init(jnp.concatenate([at.params, start]), jax.scipy.linalg.block_diag(at.prior_cov, W)),
            dual.init(at.params, at.prior_cov, start, W),
        ),
        step,
    )


def _lemmas(
    space: StateSpace, before: KalmanState, predicted: KalmanState, after: KalmanState, size: int, Q: Array, u: Any
) -> Findings:
    """Both lemmas at one step of the joint filter."""
    params, state = before.estimate[:size], before.estimate[size:]
    moved = transition(decompose(before.cov, size), transition_derivatives(space, state, params, u), Q)
    new_state = predicted.estimate[size:]
    R = noise_cov(space.family, space.h(new_state, params, u))
    seen = observe(decompose(predicted.cov, size), observation_derivatives(space, new_state, params, u), R)
    return {
        "Lemma 13": Deviation(matrix=deviation(compose(moved), predicted.cov)),
        "Lemma 14": Deviation(matrix=deviation(compose(seen), after.cov)),
    }


def forgotten_state(at: RecurrentSetting) -> Comparison:
    """W decays: |W_t| <= |W_0| prod |dPhi/dy-hat|^2 in spectral norm: exponentially fast for a contracting system."""
    space = cell_and_readout(at.model)
    start = initial_state(at.model)[: at.model.system.state_size]
    dual = dual_kalman(space)

    def step(states: Any, u: Any, y: Any, others: Mapping[str, Any]) -> tuple[Any, Findings]:
        before, bound = states
        by = transition_derivatives(space, before.state, before.params, u)
        new_bound = bound * jnp.square(jnp.linalg.norm(by.state, 2))
        after = dual.step(before, u, y)
        excess = jnp.maximum(jnp.linalg.norm(after.state_cov, 2) - new_bound, 0) / STATE_VARIANCE
        return (after, new_bound), {"Sec. 3.2, W": Deviation(matrix=excess)}

    W = STATE_VARIANCE * jnp.eye(start.size)
    return Comparison((dual.init(at.params, at.prior_cov, start, W), jnp.asarray(STATE_VARIANCE, W.dtype)), step)


def rtrl_and_bptt(at: RecurrentSetting, inputs: Any, targets: Any) -> Findings:
    """Def. 11 at fixed theta: the RTRL gradients of all steps add up to the gradient of the whole trajectory's loss."""
    space = cell_and_readout(at.model)
    start = initial_state(at.model)[: at.model.system.state_size]

    def loss(params: Array) -> Array:
        def step(state: Array, row: Any) -> tuple[Array, Array]:
            u, y = row
            moved = space.Phi(state, params, u)
            return moved, -space.family.log_prob(space.family.natural(space.h(moved, params, u)), y)

        return jnp.sum(jax.lax.scan(step, start, (inputs, targets))[1])

    def forward(carry: tuple[Array, Array], row: Any) -> tuple[tuple[Array, Array], Array]:
        (state, sensitivity), (u, y) = carry, row
        moved = space.Phi(state, at.params, u)
        advanced = advance_sensitivity(space, state, sensitivity, at.params, u)
        return (moved, advanced), estimated_gradient(space, moved, advanced, at.params, u, y)

    nothing = jnp.zeros((start.size, at.params.size))
    gradients = jax.lax.scan(forward, (start, nothing), (inputs, targets))[1]
    return {"Def. 11": Deviation(params=deviation(jnp.sum(gradients, axis=0), jax.grad(loss)(at.params)))}
