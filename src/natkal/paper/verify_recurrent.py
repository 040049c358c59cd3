"""The certificate of the recurrent half: every statement of Sec. 3 on a model and a stream, and the engine with it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from natkal.compiling.policy import run_once
from natkal.engine import fading, learning_rate, online, step_control
from natkal.models import RecurrentModel, ravel, sensitivity
from natkal.paper import recurrent_side_by_side as sides
from natkal.paper.claims import ClaimResult, Deviation, deviation, results
from natkal.paper.recurrent_side_by_side import PROCESS_NOISE, STATE_VARIANCE, RecurrentSetting
from natkal.paper.schedules import Schedule
from natkal.paper.side_by_side import Comparison, Findings, largest_deviations
from natkal.typing import Array


def verify_recurrent(
    model: RecurrentModel,
    inputs: Any,
    targets: Any,
    *,
    prior_cov: Array,
    schedules: Mapping[str, Schedule],
    tolerance: float,
    name: str,
) -> tuple[ClaimResult, ...]:
    """One row per claim, and per rate for Thm 12; called by `verify`, which checks its arguments."""
    last = list(schedules)[-1]
    at = RecurrentSetting(model, ravel(model.params), prior_cov)
    steps = len(targets)

    def certificate(inputs: Any, targets: Array) -> Mapping[str, Deviation]:
        comparisons = {
            "theorem": sides.theorem(at, list(schedules.values()), steps),
            "init": sides.initial_state_as_parameter(at, schedules[last]),
            "uncertain": sides.uncertain_state(at),
            "forgotten": sides.forgotten_state(at),
            "engine": engine(at, schedules[last]),
        }
        return {
            **largest_deviations(comparisons, inputs, targets),
            **sides.rtrl_and_bptt(at, inputs, targets),
        }

    found = run_once(certificate, jax.tree.map(jnp.asarray, inputs), jnp.asarray(targets))

    return tuple(results(found, "Thm 12", schedules, model=name, steps=steps, tolerance=tolerance))


def engine(at: RecurrentSetting, eta: Schedule) -> Comparison:
    """The engine against the joint filter: fading, at a learning rate, and with an uncertain state.

    The model's own sensitivity is run, and all of G (RTRL) where the state is uncertain, which no other can condition.
    """
    size, n = at.params.size, at.model.system.state_size
    certain = dataclasses.replace(at.model, state_cov=None, process_noise=None)
    uncertain = dataclasses.replace(
        at.model, sensitivity=sensitivity.rtrl(), state_cov=STATE_VARIANCE, process_noise=PROCESS_NOISE
    )
    literal = {"prior_cov": at.prior_cov, "step_control": step_control(cap=None)}
    learners = {
        "Engine, joint filter": online(
            certain, rates=fading(lambda t: 1 - (eta(t - 1) / eta(t) - eta(t - 1))), **literal
        ),
        "Engine, natural gradient RTRL": online(certain, rates=learning_rate(eta), **literal),
        "Engine, uncertain state": online(uncertain, **literal),
    }

    def step(states: Any, u: Any, y: Any, others: Mapping[str, Any]) -> tuple[Any, Findings]:
        fading_joint, _ = jax.tree.map(lambda per_schedule: per_schedule[-1], others["theorem"])
        noisy_joint, _ = others["uncertain"]
        new, findings = {}, {}
        references = (fading_joint, fading_joint, noisy_joint)
        for (claim, learner), reference in zip(learners.items(), references, strict=True):
            state = learner.step(states[claim], u, y)[0]
            pair = jnp.concatenate([ravel(state.params), ravel(state.carry.state)])
            new[claim] = state
            findings[claim] = Deviation(
                deviation(pair, reference.estimate[: size + n]),
                deviation(learner.covariance(state), reference.cov[:size, :size]),
            )
        return new, findings

    return Comparison({claim: learner.init(at.model.params) for claim, learner in learners.items()}, step)
