"""All algorithms of the paper on one stream, side by side in one scan, each step compared with its theorem."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.families import Categorical
from natkal.families.base import Family
from natkal.models import StaticModel
from natkal.paper import appendix, dictionary, fading, gradient, kalman, prior
from natkal.paper.claims import Deviation, deviation
from natkal.paper.fisher import change_parameters, fisher_by_enumeration, fisher_by_hessian, information
from natkal.paper.information import InformationFilter
from natkal.paper.natural_gradient import natural_gradient
from natkal.paper.schedules import Number, Schedule, inverse_time, tabulate
from natkal.paper.solve import inverse, solve
from natkal.paper.support import finite_support
from natkal.typing import Array, Float

Findings = dict[str, Deviation]


class Comparison(NamedTuple):
    """States before the first observation, and `step(states, u, y, others) -> (states, deviations by claim)`.

    `others` holds, by name, the new states of the comparisons before this one, so that nothing is run twice.
    """

    start: Any
    step: Callable[[Any, Any, Any, Mapping[str, Any]], tuple[Any, Findings]]


class Setting(NamedTuple):
    """What every comparison starts from: h and its family, theta_0 and P_0."""

    h: kalman.Mean
    family: Family
    params: Float[Array, " p"]
    prior_cov: Float[Array, "p p"]


# -- Thm 2 and what its proof rests on -----------------------------------------------------------------------------


def static_filter(at: Setting) -> Comparison:
    """The static Kalman filter against the natural gradient (Thm 2), the information filter (Lemma 9), the lemmas."""
    filter_ = kalman.ExtendedKalmanFilter(kalman.stay, at.h, at.family)
    learner = natural_gradient(at.h, at.family, inverse_time(1))
    additive = InformationFilter(kalman.stay, at.h, at.family)
    precision = inverse(at.prior_cov)
    start = (
        filter_.init(at.params, at.prior_cov),
        learner.init(at.params, precision),
        additive.init(at.params, precision),
    )

    def step(states: Any, u: Any, y: Any, others: Mapping[str, Any]) -> tuple[Any, Findings]:
        before = filter_.transition(states[0], u)
        after = filter_.observe(before, u, y)
        natural, informed = learner.step(states[1], u, y), additive.step(states[2], u, y)
        params, fisher = dictionary.to_natural_gradient(after.estimate, after.cov, 1 / (after.steps + 1))
        findings = {
            "Thm 2": Deviation(deviation(natural.params, params), deviation(natural.fisher, fisher)),
            "Lemma 9": Deviation(
                deviation(informed.estimate, after.estimate), deviation(inverse(informed.precision), after.cov)
            ),
            **_lemmas(at, before, after, u, y),
        }
        return (after, natural, informed), findings

    return Comparison(start, step)


def _lemmas(at: Setting, before: kalman.KalmanState, after: kalman.KalmanState, u: Any, y: Any) -> Findings:
    """Prop. 6, Lemmas 7, 8, 10 and the Appendix, at one step of the filter."""
    h, family, s = at.h, at.family, before.estimate
    mean = h(s, u)
    H, R = kalman.mean_jacobian(h, s, u), kalman.noise_cov(family, mean)
    K = kalman.gain(before.cov, H, R)
    moved = gradient.preconditioned_step(s, after.cov, gradient.loss_gradient(h, family, s, u, y))
    support = finite_support(family)
    findings = {
        "Prop. 6": Deviation(params=deviation(moved, after.estimate)),
        "Lemma 7": Deviation(
            params=deviation(gradient.error_from_gradient(family, mean, y), kalman.error(family, mean, y))
        ),
        "Lemma 8": Deviation(matrix=deviation(gradient.gain_from_posterior(after.cov, H, R), K)),
        "Lemma 10": Deviation(matrix=deviation(information(H, R), fisher_by_hessian(h, family, s, u))),
    }
    if support is not None:
        enumerated = fisher_by_enumeration(h, family, s, u, support)
        findings["Lemma 10"] = Deviation(matrix=deviation(information(H, R), enumerated))
        definition = appendix.natural_gradient_of_expectation(family, mean, _some_function(family), support)
        formula = appendix.covariance_with_statistic(family, mean, _some_function(family), support)
        findings["Appendix"] = Deviation(params=deviation(formula, definition))
    return findings


def _some_function(family: Family) -> Callable[[Any], Array]:
    """An f(y) that is neither linear in T(y) nor symmetric in its entries."""
    weights = jnp.arange(1.0, family.dim + 1)
    return lambda y: jnp.cos(weights @ family.sufficient_statistic(y) + 0.5)


# -- Props. 3 and 4 ------------------------------------------------------------------------------------------------


def rates(at: Setting, schedules: Sequence[Schedule], steps: int) -> Comparison:
    """The fading filter against the natural gradient (Prop. 3), one row of deviations per schedule."""
    etas = jnp.stack([tabulate(schedule, steps) for schedule in schedules])
    lambdas = jnp.stack([dictionary.fading_from_learning_rate(row) for row in etas])

    def pair(eta: Array, fadings: Array) -> tuple[fading.FadingKalmanFilter, Any]:
        filter_ = fading.FadingKalmanFilter(at.h, at.family, lambda t: fadings[t - 1])
        return filter_, natural_gradient(at.h, at.family, lambda t: eta[t])

    def begin(eta: Array, fadings: Array) -> Any:
        filter_, learner = pair(eta, fadings)
        fisher = dictionary.prior_fisher_from_cov(at.prior_cov, eta[0])
        return filter_.init(at.params, at.prior_cov), learner.init(at.params, fisher)

    def advance(eta: Array, fadings: Array, states: Any, u: Any, y: Any) -> tuple[Any, Deviation]:
        filter_, learner = pair(eta, fadings)
        faded, natural = filter_.step(states[0], u, y), learner.step(states[1], u, y)
        params, fisher = dictionary.to_natural_gradient(faded.estimate, faded.cov, eta[faded.steps])
        return (faded, natural), Deviation(deviation(natural.params, params), deviation(natural.fisher, fisher))

    def step(states: Any, u: Any, y: Any, others: Mapping[str, Any]) -> tuple[Any, Findings]:
        moved, found = jax.vmap(advance, in_axes=(0, 0, 0, None, None))(etas, lambdas, states, u, y)
        return moved, {"Prop. 3": found}

    return Comparison(jax.vmap(begin)(etas, lambdas), step)


def kept_prior(at: Setting, learning_rate: Schedule, prior_weight: Number) -> Comparison:
    """The filter that keeps its prior against the regularised natural gradient (Prop. 4); `prior_cov` is Sigma_0."""
    arguments = (at.h, at.family, learning_rate, at.params, at.prior_cov, prior_weight)
    filter_, learner = prior.PriorKeepingFilter(*arguments), prior.RegularizedNaturalGradient(*arguments)

    def step(states: Any, u: Any, y: Any, others: Mapping[str, Any]) -> tuple[Any, Findings]:
        kept, natural = filter_.step(states[0], u, y), learner.step(states[1], u, y)
        found = Deviation(deviation(natural.params, kept.estimate), deviation(learner.cov(natural), kept.cov))
        return (kept, natural), {"Prop. 4": found}

    return Comparison((filter_.init(), learner.init()), step)


# -- Sec. 1.1: which k-1 probabilities a categorical filter uses does not matter -----------------------------------


def all_logits(at: Setting, model: StaticModel) -> Comparison:
    """The filter on k-1 probabilities against the natural gradient on k logits, where diag(p) - p p' is singular."""
    assert isinstance(at.family, Categorical)
    classes = at.family.k

    def logits(params: Float[Array, " p"], u: Any) -> Float[Array, " k"]:
        raw = model.raw(model.unravel(params), u)
        return raw if raw.shape == (classes,) else jnp.append(raw, 0.0)

    def step(states: Any, u: Any, y: Any, others: Mapping[str, Any]) -> tuple[Any, Findings]:
        after = others["static"][0]
        params, precision = states
        probs, jacobian = jax.nn.softmax(logits(params, u)), jax.jacrev(logits)(params, u)
        added = change_parameters(jnp.diag(probs) - jnp.outer(probs, probs), jacobian)
        loss_gradient = jacobian.T @ (probs - jax.nn.one_hot(y, classes, dtype=probs.dtype))
        new_precision = precision + added
        moved = params - solve(new_precision, loss_gradient)
        found = Deviation(deviation(moved, after.estimate), deviation(inverse(new_precision), after.cov))
        return (moved, new_precision), {"Sec. 1.1": found}

    return Comparison((at.params, inverse(at.prior_cov)), step)


# -- the scan ------------------------------------------------------------------------------------------------------


def largest_deviations(comparisons: Mapping[str, Comparison], inputs: Any, targets: Any) -> Mapping[str, Deviation]:
    """Every comparison over the stream, in one scan: for each claim the largest deviation over all steps."""

    def step(states: dict[str, Any], row: Any) -> tuple[dict[str, Any], Findings]:
        moved: dict[str, Any] = {}
        findings: Findings = {}
        for name, comparison in comparisons.items():
            u, y = row
            moved[name], found = comparison.step(states[name], u, y, moved)
            findings |= found
        return moved, findings

    starts = {name: comparison.start for name, comparison in comparisons.items()}
    _, found = jax.lax.scan(step, starts, (inputs, targets))
    return jax.tree.map(lambda over_time: over_time.max(axis=0), found)
