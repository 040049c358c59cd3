"""Does the average of a cheap trajectory match the natural gradient's efficiency?

A well-specified logistic regression whose inputs have scales from 1 to 10, so that its Fisher matrix has a condition
number of 100, joins the streams of the other questions: there theory promises the average the same efficiency.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import natkal as nk
from benchmarks.questions.cases import SEEDS, Case, cases
from benchmarks.questions.measure import Job, Part, Scan, Setting, ask, learner_scan
from benchmarks.questions.rates import scaled_prior
from natkal.typing import Array, Params

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)
POWERS = (0.0, 2.0, 8.0)
EXPONENTS = (0.0, 0.6)
CONSTANT_RATES = (1e-3, 3e-3, 1e-2, 3e-2)
"""Constant learning rates (= fadings) of the averaged filters."""
NATURAL = "natural gradient"


def ill_conditioned(rows: int = 3000, size: int = 10) -> Case:
    """Logistic regression on its own model, inputs of scales 1 to 10; each seed has its own truth and rows."""
    rng = np.random.default_rng(0)
    scales = np.geomspace(1.0, 10.0, size)
    inputs = rng.normal(size=(SEEDS, rows, size)) * scales
    weights = rng.normal(size=(SEEDS, size, 1)) / scales / np.sqrt(size)
    targets = rng.random((SEEDS, rows)) < 1 / (1 + np.exp(-(inputs @ weights)[:, :, 0]))
    return Case(
        stream="made up, ill-conditioned",
        model="linear",
        inputs=jnp.asarray(inputs, jnp.float32),
        targets=jnp.asarray(targets, jnp.int32),
        sizes=(size, 1),
        law=nk.families.Bernoulli(),
    )


def averaged_sgd(case: Case) -> Scan:
    """theta <- theta - rate t^-exponent g, and the average weighted like t^power; `averaged` 0 predicts with theta."""

    def scan(s: dict[str, Array], params: Params, inputs: Array, targets: Array) -> Array:
        model = case.model_of(params)
        start, unravel = ravel_pytree(params)

        def log_prob(theta: Array, u: Array, y: Array) -> Array:
            return case.law.log_prob(case.law.link(model.raw(unravel(theta), u)), y)

        def step(carry: tuple[Array, Array, Array], row: tuple[Array, Array]) -> tuple[Any, Array]:
            theta, average, t = carry
            gradient = jax.grad(log_prob)(theta, *row)
            moved = theta + s["rate"] * t ** -s["exponent"] * gradient
            share = (1 + s["power"]) / (t + s["power"])
            said = log_prob(jnp.where(s["averaged"] > 0, average, theta), *row)
            return (moved, average + share * (moved - average), t + 1), said

        return jax.lax.scan(step, (start, start, jnp.ones(())), (inputs, targets))[1]

    return scan


def averaged_filter(case: Case, curvature: Callable[[], Any]) -> Scan:
    """`nk.averaged` around a filter with a constant rate; the average predicts, as `Averaged.predict` has it."""

    def scan(s: dict[str, Array], params: Params, inputs: Array, targets: Array) -> Array:
        model = case.model_of(params)
        learner = nk.online(
            model, prior_cov=scaled_prior(params, 1.0), curvature=curvature(), rates=nk.fading(s["fading"])
        )
        averaged = nk.averaged(learner, power=2.0)

        def step(state: Any, row: tuple[Array, Array]) -> tuple[Any, Array]:
            law = case.law.link(model.raw(state.params, row[0]))
            return averaged.step(state, *row)[0], case.law.log_prob(law, row[1])

        return jax.lax.scan(step, averaged.init(params), (inputs, targets))[1]

    return scan


def natural_gradient(case: Case) -> Scan:
    """The natural gradient with rate 1/(t+1), from P_0 = scale / fan-in."""

    def build(case: Case, s: dict[str, Array], params: Params) -> Any:
        return nk.online(case.model_of(params), prior_cov=scaled_prior(params, s["scale"]))

    return learner_scan(build, case)


def averaging(report: Callable[[str], None]) -> dict[str, Any]:
    """The natural gradient at one setting against SGD, averaged SGD and averaged filters over grids."""
    plain: dict[str, Setting] = {
        f"SGD, rate {rate:g} t^-{a:g}": {"rate": rate, "exponent": a, "power": 0.0, "averaged": 0.0}
        for rate in RATES
        for a in EXPONENTS
    }
    mean: dict[str, Setting] = {
        f"averaged SGD, rate {rate:g} t^-{a:g}, power {power:g}": {
            "rate": rate,
            "exponent": a,
            "power": power,
            "averaged": 1.0,
        }
        for rate in RATES
        for a in EXPONENTS
        for power in POWERS
    }

    def filters(name: str) -> dict[str, Setting]:
        return {f"averaged {name} filter, fading {f:g}": {"fading": f} for f in CONSTANT_RATES}

    jobs = [
        Job(
            case,
            "averaging",
            [
                Part({f"{NATURAL}, {c:g}/fan-in": {"scale": c} for c in (1.0, 3.0, 10.0)}, natural_gradient(case)),
                Part(plain | mean, averaged_sgd(case)),
                Part(filters("dense"), averaged_filter(case, nk.dense)),
                Part(filters("diagonal"), averaged_filter(case, nk.diagonal)),
            ],
        )
        for case in (ill_conditioned(), *cases())
    ]
    found = ask(jobs, lambda label: f"{NATURAL}, 3/fan-in", report)
    return {**found, "best": best_of(found["rows"])}


def best_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each case, each method at its best setting in hindsight, against the natural gradient at one setting."""
    found = []
    for row in rows:
        method = row["setting"].split(", ")[0]
        place = next((n for n, one in enumerate(found) if _same(one, row, method)), None)
        if place is None:
            found.append({**row, "method": method})
        elif row["log_loss"] < found[place]["log_loss"]:
            found[place] = {**row, "method": method}
    return found


def _same(one: dict[str, Any], row: dict[str, Any], method: str) -> bool:
    return (one["stream"], one["model"], one["method"]) == (row["stream"], row["model"], method)
