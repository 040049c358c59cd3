"""The paper as a certificate: every statement, run on a model and a stream; the engine with it."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from natkal.compiling.policy import run_once
from natkal.curvature import dense
from natkal.engine import Learner, fading, learning_rate, online, step_control
from natkal.families import Categorical
from natkal.models import RecurrentModel, StaticModel, ravel
from natkal.paper import sampling
from natkal.paper.claims import ClaimResult, Deviation, deviation, result, results
from natkal.paper.dictionary import fan_in_prior
from natkal.paper.kalman import mean_function
from natkal.paper.schedules import Number, Schedule, constant, inverse_sqrt, inverse_time
from natkal.paper.side_by_side import (
    Comparison,
    Findings,
    Setting,
    all_logits,
    kept_prior,
    largest_deviations,
    rates,
    static_filter,
)
from natkal.paper.solve import inverse
from natkal.paper.verify_recurrent import verify_recurrent
from natkal.typing import Array

SCHEDULES: Mapping[str, Schedule] = {
    "eta = 1/(t+1)": inverse_time(1),
    "eta = 1/(t+20)": inverse_time(20),
    "eta = 0.01": constant(0.01),
    "eta = 0.15/sqrt(t+25)": inverse_sqrt(25, 0.15),
}
"""The learning rates that Prop. 3 is run with; Prop. 4 and the engine take the last one."""


def verify(
    model: StaticModel | RecurrentModel,
    inputs: Any,
    targets: Any,
    *,
    prior_cov: Any = None,
    prior_weight: Number = 1.0,
    schedules: Mapping[str, Schedule] | None = None,
    tolerance: float = 1e-10,
    name: str = "model",
    seed: int = 0,
) -> tuple[ClaimResult, ...]:
    """Run the paper's theorems on a model and a stream, one row of the certificate per claim.

    Starts from `model.params` with prior covariance `prior_cov`: variances like the parameters, a matrix or a number;
    1/fan-in if not given. A deviation is the largest over all steps of `max|a - b| / max|b|`, and passes up to
    `tolerance`; the default can only be met in float64. The sampled Fisher matrix is tested at level 0.001 from `seed`.

    >>> import jax, jax.numpy as jnp
    >>> import natkal as nk
    >>> model = nk.static_model(lambda w, u: w @ u, jnp.zeros(2), nk.families.Bernoulli())
    >>> u = jax.random.normal(jax.random.key(0), (20, 2))
    >>> rows = verify(model, u, (u[:, 0] > 0).astype(int), tolerance=1e-3)
    >>> all(row.passed for row in rows)
    True
    """
    params = ravel(model.params)
    _check(model, params, tolerance)
    targets = np.asarray(targets)
    model.family.check_targets(targets)
    steps = len(targets)
    for rows in jax.tree.leaves(inputs):
        if len(rows) != steps:
            raise ValueError(f"inputs: {len(rows)} rows, but targets has {steps}")
    chosen = SCHEDULES if schedules is None else schedules
    if isinstance(model, RecurrentModel):
        matrix = _dense(model, prior_cov)
        return verify_recurrent(
            model, inputs, targets, prior_cov=matrix, schedules=chosen, tolerance=tolerance, name=name
        )
    last = list(chosen)[-1]
    at = Setting(mean_function(model), model.family, params, _dense(model, prior_cov))

    def certificate(inputs: Any, targets: Array, key: Array) -> tuple[Mapping[str, Deviation], Array]:
        comparisons = {
            "static": static_filter(at),
            "rates": rates(at, list(chosen.values()), steps),
            "prior": kept_prior(at, chosen[last], prior_weight),
            "engine": engine(model, at, chosen[last], prior_weight),
        }
        if isinstance(model.family, Categorical):
            comparisons["logits"] = all_logits(at, model)
        u, y = jax.tree.map(lambda rows: rows[0], (inputs, targets))
        return largest_deviations(comparisons, inputs, targets), sampling.largest_z(at.h, at.family, params, u, y, key)

    found, z = run_once(certificate, jax.tree.map(jnp.asarray, inputs), jnp.asarray(targets), jax.random.key(seed))

    rows = results(found, "Prop. 3", chosen, model=name, steps=steps, tolerance=tolerance)
    bound = sampling.bound(params.size)
    rows.append(result("Sec. 1.2", setting="", model=name, steps=1, params=None, matrix=float(z), tolerance=bound))
    return tuple(rows)


def engine(model: StaticModel, at: Setting, eta: Schedule, prior_weight: Number) -> Comparison:
    """The engine in its three guises against the paper's algorithms at the same rates: it is filter and gradient."""

    def fading_at(t: Any) -> Any:
        return 1 - (eta(t - 1) / eta(t) - eta(t - 1))  # Prop. 3

    def literal(**options: Any) -> Learner:
        return online(model, prior_cov=at.prior_cov, step_control=step_control(cap=None), **options)

    every_direction = dense(prior_directions=model.size)  # the prior renewed in full at each step, as in Prop. 4
    learners = (
        literal(rates=fading(fading_at)),
        literal(rates=learning_rate(eta)),
        literal(rates=learning_rate(eta), prior_weight=prior_weight, curvature=every_direction),
    )

    def step(states: Any, u: Any, y: Any, others: Mapping[str, Any]) -> tuple[Any, Findings]:
        new = [learner.step(state, u, y)[0] for learner, state in zip(learners, states, strict=True)]
        faded, natural = jax.tree.map(lambda per_schedule: per_schedule[-1], others["rates"])
        kept, regularized = others["prior"]
        references = {
            "Engine, Kalman": (faded.estimate, faded.cov),
            "Engine, natural gradient": (natural.params, eta(natural.steps) * inverse(natural.fisher)),
            "Engine, kept prior": (regularized.params, kept.cov),
        }
        findings = {
            claim: Deviation(deviation(ravel(state.params), params), deviation(learner.covariance(state), cov))
            for learner, state, (claim, (params, cov)) in zip(learners, new, references.items(), strict=True)
        }
        return tuple(new), findings

    return Comparison(tuple(learner.init(model.params) for learner in learners), step)


def _dense(model: StaticModel | RecurrentModel, prior_cov: Any) -> Array:
    """`prior_cov` as a matrix on the flat parameters."""
    flat = ravel(model.params)
    given = fan_in_prior(model.params) if prior_cov is None else prior_cov
    if jax.tree.structure(given) == jax.tree.structure(model.params) and np.shape(given) != (flat.size, flat.size):
        try:
            variances = jax.tree.map(lambda leaf, value: jnp.broadcast_to(value, jnp.shape(leaf)), model.params, given)
        except ValueError as error:
            raise ValueError(f"prior_cov: its shapes are not those of the parameters ({error})") from error
        return jnp.diag(ravel(variances).astype(flat.dtype))
    shape = np.shape(given) if jax.tree.structure(given) == jax.tree.structure(0) else None
    if shape not in ((), (flat.size,), (flat.size, flat.size)):
        raise ValueError(
            f"prior_cov: neither variances like the parameters, nor a number, nor {flat.size} variances, nor a "
            f"{flat.size} x {flat.size} matrix, got {given!r}"
        )
    cov = jnp.asarray(given, flat.dtype)
    return cov if cov.ndim == 2 else jnp.diag(jnp.broadcast_to(cov, flat.shape))


def _check(model: StaticModel | RecurrentModel, params: Array, tolerance: float) -> None:
    """Refuse what cannot be certified, before anything is compiled."""
    if 100 * jnp.finfo(params.dtype).eps > tolerance:
        raise ValueError(
            f"tolerance: {tolerance:g} is out of reach of {params.dtype} parameters; "
            'set jax.config.update("jax_enable_x64", True) before building the model, or allow more'
        )
    if not getattr(model.family, "minimal", True):
        raise ValueError(
            f"family: the statistics of {model.family} are linearly dependent, so R is singular and Def. 5 "
            "cannot invert it (Sec. 1.1)"
        )
