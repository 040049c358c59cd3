"""`python -m benchmarks step-control`: every step control on two problems.

A minute on a GPU, half an hour on two cores. `digits`: log loss of the embedded digits, one pass, 64-20-10, over
priors and fadings. `logistic`: three weights from prior variance 1e4, 500 observations, 20 seeds.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from benchmarks.size import sized
from natkal.data import digits
from natkal.stream.run import scan

CONTROLS = {
    "textbook": nk.step_control(cap=None),
    "newton 8": nk.step_control(cap=None, newton=8),
    "relinearize 2": nk.step_control(cap=None, relinearize=2),
    "cap 1": nk.step_control(cap=1.0),
    "cap 2": nk.step_control(cap=2.0),
    "cap 3": nk.step_control(cap=3.0),
    "cap 5": nk.step_control(cap=5.0),
    "newton 8, cap 3": nk.step_control(cap=3.0, newton=8),
    "relinearize 2, cap 3": nk.step_control(cap=3.0, relinearize=2),
}
PARTS = ("digits", "logistic")
PRIORS = (0.3, 1.0, 3.0, 10.0)
FADINGS = (0.0, 1e-3, 5e-3)


def run_part(part: str, report: Callable[[str], None]) -> dict[str, Any]:
    """A row for each step control."""
    rows = []
    for name, control in CONTROLS.items():
        report(f"{part}: {name}")
        rows.append({"control": name, **(network_losses(control) if part == "digits" else logistic(control))})
    return {"rows": rows}


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """One table for each problem."""
    titles = {"digits": "Digits: log loss before learning", "logistic": "Logistic regression from prior variance 1e4"}
    return [(titles[part], result["rows"], tuple(result["rows"][0])) for part, result in results.items()]


def network_losses(control: Any) -> dict[str, float]:
    """Log loss before learning, one pass, MLP 64-20-10; a learner per prior scale (over fan-in) and fading."""
    inputs, targets = digits()
    order = np.random.default_rng(0).permutation(len(targets))[: sized(len(targets), 30)]
    inputs, targets = jnp.asarray(inputs[order] / 8 - 1, jnp.float32), jnp.asarray(targets[order])
    params = nk.mlp_params(jax.random.key(0), (64, 20, 10))
    model = nk.static_model(nk.mlp_apply, params, nk.families.Categorical(10))
    variances = nk.paper.dictionary.fan_in_prior(params)

    def loss(scale, fading):
        learner = nk.online(
            model, prior_cov=jax.tree.map(lambda v: v * scale, variances), rates=nk.fading(fading), step_control=control
        )
        return -jnp.mean(scan(learner, "all", learner.init(params), inputs, targets)[1].log_prob)

    settings = [(prior, fading) for prior in PRIORS for fading in FADINGS]
    losses = jax.jit(jax.vmap(loss))(*map(jnp.asarray, zip(*settings, strict=True)))
    return {f"{p:g}/fan-in, fading {f:g}": round(float(v), 3) for (p, f), v in zip(settings, losses, strict=True)}


def logistic(control: Any) -> dict[str, float]:
    """Prior variance 1e4, three features, 500 observations, 20 seeds: mean log-likelihood and largest logit."""
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(3), nk.families.Bernoulli())
    learner = nk.online(model, prior_cov=1e4, step_control=control)

    def one(key):
        key_w, key_u, key_y = jax.random.split(key, 3)
        truth, inputs = 2 * jax.random.normal(key_w, (3,)), jax.random.normal(key_u, (500, 3))
        targets = (jax.random.uniform(key_y, (500,)) < jax.nn.sigmoid(inputs @ truth)).astype(int)
        _, info = scan(learner, "all", learner.init(jnp.zeros(3)), inputs, targets)
        return jnp.mean(info.log_prob), jnp.max(jnp.abs(info.prediction.natural))

    mean, largest = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 20))
    return {"mean log-likelihood": round(float(mean.mean()), 3), "largest logit": round(float(largest.max()), 1)}
