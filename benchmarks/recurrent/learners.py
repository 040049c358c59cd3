"""Who forecasts: natkal's learner at its defaults, and three rivals over grids of settings."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import natkal as nk
from benchmarks.recurrent.series import LAGS
from natkal.models import RecurrentModel, cells, ravel
from natkal.paper.dictionary import fan_in_prior
from natkal.typing import Array, Params

UNITS = 16
PRIOR_SCALES, FADINGS, SHARE = (0.1, 0.3, 1.0, 3.0), (0.0, 1e-3), 1e-2
"""natkal's eight members, the same on every series, mixed by their running likelihood with this fixed share."""


class Forecasts(NamedTuple):
    """For each step, the forecast and the log-probability of what came."""

    mean: Array
    log_prob: Array


def readout(params: Params, state: Any, inputs: Array) -> Array:
    """(mean, log variance): the mean from the units and, directly, from the inputs; the variance from the units."""
    weights = params["readout"]
    raw = cells.tanh(UNITS).readout(params, state, inputs)
    return raw + jnp.stack([inputs @ weights["direct"], jnp.zeros((), raw.dtype)])


def network(key: Array, **options: Any) -> RecurrentModel:
    """A tanh network of 16 units on the last 8 values, with a learned variance: the same for natkal and for Adam."""
    cell = cells.tanh(UNITS)
    cell_key, readout_key = jax.random.split(key)
    out = cells.readout_params(readout_key, UNITS, 2)
    params = {
        "cell": cell.params(cell_key, LAGS),
        "readout": {"weight": 0.1 * out["weight"], "bias": out["bias"], "direct": jnp.zeros(LAGS)},
    }
    return nk.recurrent_model(cell, readout, params, cell.state(), nk.families.GaussianUnknownVariance(), **options)


def mean_network(key: Array) -> RecurrentModel:
    """The same network without the output for the variance, which `nk.auto` learns by itself."""
    cell = cells.tanh(UNITS)
    whole = network(key).params
    readout = {name: leaf[..., :1] for name, leaf in whole["readout"].items() if name != "direct"}
    params = {"cell": whole["cell"], "readout": {**readout, "direct": whole["readout"]["direct"]}}

    def mean(params: Params, state: Any, inputs: Array) -> Array:
        return cell.readout(params, state, inputs) + inputs @ params["readout"]["direct"]

    return nk.recurrent_model(cell, mean, params, cell.state(), nk.families.Gaussian(1.0))


def untuned(keys: Array, inputs: Array, targets: Array) -> Forecasts:
    """`nk.auto(model)` from the first weights of each key, nothing else said."""
    learner = nk.auto(mean_network(keys[0]))

    def one(key: Array) -> Forecasts:
        _, info = nk.run(learner, learner.init(mean_network(key).params), inputs, targets)
        return Forecasts(mean=info.prediction.mean[:, 0], log_prob=info.log_prob)

    return jax.tree.map(lambda *each: jnp.stack(each), *(one(key) for key in keys))


def prior(params: Params, scale: Any) -> Params:
    """`scale` / fan-in for the network's weights; 1 for direct ones, 3 for biases, 3/fan-in for the log variance."""
    variances = jax.tree.map(lambda variance: scale * variance, fan_in_prior(params))
    log_variance = jnp.full((UNITS, 1), 3 / UNITS)
    return {
        "cell": variances["cell"],
        "readout": {
            "weight": jnp.concatenate([variances["readout"]["weight"][:, :1], log_variance], axis=1),
            "bias": jnp.full(2, 3.0),
            "direct": jnp.ones(LAGS),
        },
    }


def member(key: Array, inputs: Array, targets: Array, scale: Any, fading: Any) -> Forecasts:
    """Natural-gradient RTRL: exact sensitivity, dense curvature, state correction."""
    model = network(key)
    learner = nk.online(model, prior_cov=prior(model.params, scale), rates=nk.fading(fading))

    def step(state: Any, row: Any) -> tuple[Any, Forecasts]:
        after, info = learner.step(state, *row)
        return after, Forecasts(info.prediction.mean[0], info.log_prob)

    return jax.lax.scan(step, learner.init(model.params), (inputs, targets))[1]


def natkal(key: Array, inputs: Array, targets: Array) -> Forecasts:
    """The members mixed: each forecast is weighed by what its member has been worth so far."""
    settings = jnp.asarray([(scale, fading) for scale in PRIOR_SCALES for fading in FADINGS], inputs.dtype)
    each = jax.vmap(lambda setting: member(key, inputs, targets, setting[0], setting[1]))(settings)
    return mixed(each)


def mixed(each: Forecasts) -> Forecasts:
    """One law from those of M members, (M, T): w_t ~ (1 - share) w_{t-1} p_{t-1} + share / M (fixed share)."""
    count = len(each.log_prob)
    log_probs = jnp.nan_to_num(each.log_prob, nan=-1e6, neginf=-1e6)
    means = jnp.nan_to_num(each.mean)

    def step(log_weights: Array, row: Any) -> tuple[Array, Forecasts]:
        means, log_probs = row
        shared = (1 - SHARE) * jax.nn.softmax(log_weights) + SHARE / count
        joint = jnp.log(shared) + log_probs
        total = jax.nn.logsumexp(joint)
        return joint - total, Forecasts(shared @ means, total)

    return jax.lax.scan(step, jnp.zeros(count), (means.T, log_probs.T))[1]


def adam_step(model: RecurrentModel, rate: Any, carry: Any, row: Any) -> tuple[Any, Forecasts]:
    """One step of Adam on -log p, the gradient taken through the model's sensitivity."""
    params, first, second, memory, count = carry
    u, y = row
    around = model.linearize(params, memory, u)
    gradient = -around.pullback(model.outputs.score(around.raw, y)[None])[0]
    new_first, new_second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * jnp.square(gradient)
    new_count = count + 1
    unbiased = new_first / (1 - 0.9**new_count), new_second / (1 - 0.999**new_count)
    move = -rate * unbiased[0] / (jnp.sqrt(unbiased[1]) + 1e-8)
    moved = jax.tree.map(jnp.add, params, model.unravel(move))
    log_prob = model.outputs.log_prob(model.outputs.link(around.raw), y)
    return (moved, new_first, new_second, around.carry, new_count), Forecasts(around.raw[0], log_prob)


def adam(key: Array, inputs: Array, targets: Array, rate: Any, **options: Any) -> Forecasts:
    """Adam on the same likelihood, through the same network; the state is left alone, as usual."""
    model = network(key, state_correction=False, **options)
    zeros = jnp.zeros_like(ravel(model.params))
    start = model.params, zeros, zeros, model.init_carry(model.params), jnp.zeros(())
    return jax.lax.scan(lambda carry, row: adam_step(model, rate, carry, row), start, (inputs, targets))[1]


def recursive_least_squares(inputs: Array, targets: Array, prior_variance: Any, fading: Any, memory: Any) -> Forecasts:
    """AR(8) with a constant, by recursive least squares; the variance is an average of squared errors that fades."""
    rows = jnp.concatenate([inputs, jnp.ones((len(inputs), 1))], axis=1)

    def step(carry: Any, row: Any) -> tuple[Any, Forecasts]:
        weights, P, variance = carry
        x, y = row
        mean = x @ weights
        faded = P / (1 - fading)
        gain = faded @ x / (1 + x @ faded @ x)
        error = y - mean
        log_prob = -0.5 * (jnp.log(2 * jnp.pi * variance) + error**2 / variance)
        new_variance = (1 - memory) * variance + memory * error**2
        return (weights + gain * error, faded - jnp.outer(gain, x @ faded), new_variance), Forecasts(mean, log_prob)

    size = rows.shape[1]
    start = jnp.zeros(size), prior_variance * jnp.eye(size), jnp.ones(())
    return jax.lax.scan(step, start, (rows, targets))[1]
