"""Which step to take by default: every control on the embedded digits and on logistic regression from a broad prior.

Prints one JSON object. About a minute on a GPU, half an hour on two cores.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from natkal.data import digits
from natkal.drivers.run import scan

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
PRIORS = (0.3, 1.0, 3.0, 10.0)
FADINGS = (0.0, 1e-3, 5e-3)


def network_losses(control) -> dict[str, float]:
    """Log loss before learning, one pass, MLP 64-20-10; a learner per prior scale (over fan-in) and fading."""
    inputs, targets = digits()
    order = np.random.default_rng(0).permutation(len(targets))
    inputs, targets = jnp.asarray(inputs[order] / 8 - 1, jnp.float32), jnp.asarray(targets[order])
    params = nk.mlp_params(jax.random.key(0), (64, 20, 10))
    model = nk.static_model(nk.mlp_apply, params, nk.families.Categorical(10))
    variances = nk.paper.dictionary.fan_in_prior(params)

    def loss(scale, fading):
        learner = nk.online(
            model, prior_cov=jax.tree.map(lambda v: v * scale, variances), rates=nk.fading(fading), step_control=control
        )
        body = lambda state, row: (lambda new, info: (new, info.log_prob))(*learner.step_unchecked(state, *row))  # noqa: E731
        return -jnp.mean(jax.lax.scan(body, learner.init(params), (inputs, targets))[1])

    settings = [(prior, fading) for prior in PRIORS for fading in FADINGS]
    losses = jax.jit(jax.vmap(loss))(*map(jnp.asarray, zip(*settings, strict=True)))
    return {f"{p:g}/fan-in, fading {f:g}": round(float(v), 3) for (p, f), v in zip(settings, losses, strict=True)}


def logistic(control) -> dict[str, float]:
    """Prior variance 1e4, three features, 500 observations, 20 seeds: mean log-likelihood and largest logit."""
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(3), nk.families.Bernoulli())
    learner = nk.online(model, prior_cov=1e4, step_control=control)

    def one(key):
        key_w, key_u, key_y = jax.random.split(key, 3)
        truth, inputs = 2 * jax.random.normal(key_w, (3,)), jax.random.normal(key_u, (500, 3))
        targets = (jax.random.uniform(key_y, (500,)) < jax.nn.sigmoid(inputs @ truth)).astype(int)
        _, info = scan(learner, learner.init(jnp.zeros(3)), inputs, targets)
        return jnp.mean(info.log_prob), jnp.max(jnp.abs(info.prediction.natural))

    mean, largest = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 20))
    return {"mean log-likelihood": round(float(mean.mean()), 3), "largest logit": round(float(largest.max()), 1)}


if __name__ == "__main__":
    report = {}
    for name, control in CONTROLS.items():
        report[name] = {"digits": network_losses(control), "logistic": logistic(control)}
        print(name, report[name]["digits"], report[name]["logistic"], flush=True)
    print(json.dumps(report))
