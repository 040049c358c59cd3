"""Two tasks on which forgetting the past fails: influence balancing, and the language a^n b^n."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from benchmarks.recurrent.learners import adam_step
from natkal.models import RecurrentModel, cells, ravel
from natkal.paper.dictionary import fan_in_prior
from natkal.typing import Array

# -- influence balancing (Tallec & Ollivier 2017, Sec. 5) --------------------------------------------------------------

UNITS, MINUS, TARGET = 23, 13, 1.0


def influence_model(sensitivity: Any) -> RecurrentModel:
    """s_i <- (s_i + s_{i+1}) / 2 +- theta: at once theta raises s_1, in the long run s_1 = -6 theta."""
    signs = jnp.asarray(np.where(np.arange(UNITS) < UNITS - MINUS, 1.0, -1.0))

    def cell(theta: Array, s: Array, u: Array) -> Array:
        return 0.5 * s + 0.5 * jnp.append(s[1:], 0.0) + theta * signs

    return nk.recurrent_model(
        cell, lambda theta, s, u: s[0], jnp.array(0.5), jnp.zeros(UNITS), nk.families.Gaussian(1.0),
        sensitivity=sensitivity, state_correction=False, sensitivity_cap=1e6,
    )  # fmt: skip


def influence_balancing(steps: int = 40_000, seeds: int = 10) -> dict[str, Any]:
    """Gradient descent at a rate of 3e-5 / sqrt(1 + t/1000) under each sensitivity; median of the seeds."""
    contenders = {
        "RTRL": lambda seed: nk.sensitivity.rtrl(),
        "UORO": nk.sensitivity.uoro,
        "NoBackTrack": nk.sensitivity.nobacktrack,
        "truncated BPTT, 1 step": lambda seed: nk.sensitivity.truncated(1),
        "truncated BPTT, 10 steps": lambda seed: nk.sensitivity.truncated(10),
    }

    def descend(build: Any, seed: Array) -> Array:
        model = influence_model(build(seed))

        def step(carry: Any, t: Array) -> tuple[Any, Array]:
            theta, memory = carry
            around = model.linearize(theta, memory, jnp.zeros(()))
            slope = around.pullback((around.raw - TARGET)[None])[0, 0]
            rate = 3e-5 / jnp.sqrt(1 + t / 1000)
            return (jnp.clip(theta - rate * slope, -1e3, 1e3), around.carry), 0.5 * jnp.square(around.raw[0] - TARGET)

        start = model.params, model.init_carry(model.params)
        return jax.lax.scan(step, start, jnp.arange(float(steps)))[1]

    def curve(losses: Array) -> list[float]:
        windows = np.median(np.asarray(losses), axis=0).reshape(20, -1)
        return [float(value) for value in windows.mean(axis=1)]

    curves = {
        name: curve(jax.jit(jax.vmap(lambda seed, build=build: descend(build, seed)))(jnp.arange(seeds)))
        for name, build in contenders.items()
    }
    rows = [
        {"method": name, "first": values[0], "last": values[-1], "converged": values[-1] < 0.1 * values[0]}
        for name, values in curves.items()
    ]
    return {"steps": steps, "seeds": seeds, "rows": rows, "curves": curves}


# -- a^n b^n -----------------------------------------------------------------------------------------------------------


def counting_stream(length: int, longest: int = 8, seed: int = 0) -> np.ndarray:
    """Symbols 0 (a), 1 (b), 2 (end of word) of words a^n b^n with n uniform in 1 .. longest."""
    rng = np.random.default_rng(seed)
    words = [np.repeat([0, 1, 2], [n, n, 1]) for n in rng.integers(1, longest + 1, size=length)]
    return np.concatenate(words)[: length + 1]


def best_possible(stream: np.ndarray, longest: int = 8) -> float:
    """Nats per symbol of the source itself: only the first b of each word is uncertain, -log p(n) in all."""
    words = np.count_nonzero(stream == 2)
    return float(words * np.log(longest) / len(stream))


def counting(length: int = 6_000, units: int = 12, seeds: int = 3) -> dict[str, Any]:
    """Next-symbol prediction, nats per symbol: natkal (prior 3/fan-in, fading 3e-4), Adam at its best rate for each."""
    stream = counting_stream(length)
    inputs, targets = jnp.eye(3)[stream[:-1]], jnp.asarray(stream[1:], jnp.int32)
    family = nk.families.Categorical(3, minimal=False)
    rates = jnp.asarray([1e-3, 3e-3, 1e-2, 3e-2])

    def model_for(key: Array, **options: Any) -> RecurrentModel:
        params = {
            "cell": cells.gru(units).params(key, 3),
            "readout": cells.readout_params(jax.random.fold_in(key, 1), units, 3),
        }
        cell = cells.gru(units)
        return nk.recurrent_model(cell, cell.readout, params, cell.state(), family, **options)

    def natkal(key: Array) -> Array:
        model = model_for(key)
        prior = jax.tree.map(lambda variance: 3.0 * variance, fan_in_prior(model.params))
        learner = nk.online(model, prior_cov=prior, rates=nk.fading(3e-4))

        def step(state: Any, row: Any) -> tuple[Any, Array]:
            after, info = learner.step(state, *row)
            return after, info.log_prob

        return -jax.lax.scan(step, learner.init(model.params), (inputs, targets))[1]

    def adam(key: Array, rate: Array, sensitivity: Any) -> Array:
        model = model_for(key, state_correction=False, sensitivity=sensitivity)
        zeros = jnp.zeros_like(ravel(model.params))
        start = model.params, zeros, zeros, model.init_carry(model.params), jnp.zeros(())
        return -jax.lax.scan(lambda carry, row: adam_step(model, rate, carry, row), start, (inputs, targets))[
            1
        ].log_prob

    keys = jax.random.split(jax.random.key(0), seeds)
    losses = {"natkal, RTRL": np.asarray(jax.jit(jax.vmap(natkal))(keys)).mean(axis=0)}
    for name, sensitivity in {
        "Adam, RTRL": nk.sensitivity.rtrl(),
        "Adam, UORO": nk.sensitivity.uoro(),
        "Adam, Kronecker RTRL": nk.sensitivity.kronecker_rtrl(),
        "Adam, truncated BPTT, 8 steps": nk.sensitivity.truncated(8),
        "Adam, no history": nk.sensitivity.immediate(),
    }.items():
        over_rates = jax.vmap(lambda key, rate, s=sensitivity: adam(key, rate, s), in_axes=(None, 0))
        found = np.asarray(jax.jit(jax.vmap(over_rates, in_axes=(0, None)))(keys, rates)).mean(axis=0)
        losses[name] = found[int(np.nanargmin(found.mean(axis=1)))]
    rows = [
        {"method": name, "all": float(loss.mean()), "last_tenth": float(loss[-length // 10 :].mean())}
        for name, loss in losses.items()
    ]
    curves = {name: [float(part.mean()) for part in np.array_split(loss, 20)] for name, loss in losses.items()}
    return {"symbols": length, "best_possible": best_possible(stream), "rows": rows, "curves": curves}
