"""A memory chain: a bit is shown, noise follows for a gap, then the bit is asked for. One pass, no resets.

natkal: rotating gated units (`nk.cells.rtu`) with exact diagonal sensitivities, a covariance for each unit, a bank of
priors. Rivals, on the same network: truncated back-propagation over 16 steps with Adam, and the immediate derivative
with RMSprop (arXiv:2603.28750), each at its best rate of four in hindsight.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from natkal.models import RecurrentModel, ravel

GAPS = (2, 8, 32, 64, 128)
UNITS, WINDOW, RECALLS = 16, 16, 600
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
PRIORS = (0.3, 1.0, 3.0, 10.0)
METHODS = ("natkal", "truncated_16_adam", "immediate_rmsprop")


def stream(gap: int, recalls: int = RECALLS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (bit or noise, whether one is shown, whether it is asked for); targets are the bits where asked for."""
    rng = np.random.default_rng(seed)
    period = gap + 1
    bits = rng.integers(0, 2, size=recalls)
    inputs, targets = np.zeros((recalls * period, 3)), np.full(recalls * period, np.nan)
    shown, asked = np.arange(recalls) * period, np.arange(recalls) * period + gap
    inputs[:, 0] = rng.normal(size=len(inputs))
    inputs[shown, 0], inputs[shown, 1] = 2.0 * bits - 1, 1.0
    inputs[asked, 2] = 1.0
    targets[asked] = bits
    return inputs, targets


def network(gap: int, **options: Any) -> RecurrentModel:
    """The same network for everyone; its longest time constant is that of the longest gap, whatever the gap."""
    cell = nk.cells.rtu(UNITS, memory=float(max(GAPS)))
    return nk.recurrent_network(jax.random.key(gap), cell, 3, nk.families.Bernoulli(), hidden=(16,), **options)


def memory(report: Callable[[str], None], gaps: tuple[int, ...] = GAPS, recalls: int = RECALLS) -> dict[str, Any]:
    """For each gap, the log loss of the last fifth of the recalled bits under each method."""
    rows = []
    for gap in gaps:
        inputs, targets = stream(gap, recalls)
        row: dict[str, Any] = {"gap": gap, "steps": len(targets)}
        for method in METHODS:
            report(f"gap {gap}: {method}")
            row[method] = _loss(method, gap, inputs, targets)
        rows.append(row)
    return {"rows": rows, "methods": METHODS, "units": UNITS, "rates": RATES, "priors": PRIORS}


def _loss(method: str, gap: int, inputs: np.ndarray, targets: np.ndarray) -> float:
    if method == "natkal":
        model = network(gap)
        prior = nk.fan_in_prior(model.params)
        members = [
            nk.online(
                model,
                prior_cov=jax.tree.map(lambda variance, scale=scale: variance * scale, prior),
                curvature=nk.blocks(by="unit"),
            )
            for scale in PRIORS
        ]
        bank = nk.bank(members)
        _, info = nk.run(bank, bank.init(), inputs, targets)
        return _last_fifth(np.asarray(info.log_prob), targets)
    options = {"sensitivity": nk.sensitivity.truncated(WINDOW)} if "truncated" in method else {}
    options = options or {"sensitivity": nk.sensitivity.immediate()}
    model = network(gap, state_correction=False, **options)
    losses = jax.jit(jax.vmap(lambda rate: _descent(model, rate, "adam" in method, inputs, targets)))(jnp.array(RATES))
    return min(_last_fifth(np.asarray(row), targets) for row in losses)


def _descent(model: RecurrentModel, rate: Any, momentum: bool, inputs: Any, targets: Any) -> Any:
    """Adam, or RMSprop, on -log p of the rows that have a target; log p of each row before it is learned."""

    def step(carried: Any, row: Any) -> tuple[Any, Any]:
        params, first, second, held, count = carried
        u, y = row
        around = model.linearize(params, held, u)
        known = ~jnp.isnan(y)
        value = jnp.where(known, y, 0.0)
        gradient = -around.pullback(model.outputs.score(around.raw, value)[None])[0]
        new_count = count + known
        new_first = 0.9 * first + 0.1 * gradient if momentum else gradient
        new_second = 0.999 * second + 0.001 * jnp.square(gradient)
        scale = jnp.sqrt(new_second / (1 - 0.999**new_count)) + 1e-8
        move = -rate * (new_first / (1 - 0.9**new_count) if momentum else new_first) / scale
        moved = jax.tree.map(jnp.add, params, model.unravel(move))
        learned = (moved, new_first, new_second, new_count)
        kept = jax.tree.map(lambda new, old: jnp.where(known, new, old), learned, (params, first, second, count))
        log_prob = model.outputs.log_prob(model.outputs.link(around.raw), value)
        return (kept[0], kept[1], kept[2], around.carry, kept[3]), jnp.where(known, log_prob, 0.0)

    zeros = jnp.zeros_like(ravel(model.params))
    start = (model.params, zeros, zeros, model.init_carry(model.params), jnp.zeros(()))
    rows = (jnp.asarray(inputs, zeros.dtype), jnp.asarray(targets, zeros.dtype))
    return jax.lax.scan(step, start, rows)[1]


def _last_fifth(log_prob: np.ndarray, targets: np.ndarray) -> float:
    own = -log_prob[~np.isnan(targets)]
    return float(np.mean(own[-len(own) // 5 :]))
