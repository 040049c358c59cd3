"""A memory chain: a bit is shown, noise follows for a gap, then the bit is asked for. One pass, no resets.

natkal: `nk.auto` on rotating gated units (`nk.cells.rtu`, defaults) with exact diagonal sensitivities and a covariance
for each unit. Rivals, on the same network: truncated back-propagation over 16 steps with Adam, and the immediate
derivative with RMSprop (arXiv:2603.28750), each at its best rate of four in hindsight, on the inputs as they are and
on inputs standardised in hindsight (`nk.auto` standardises them as rows come). Standardising makes the rare input that
marks a bit large: it then opens the gates at the first weights, and a readout of these may be enough.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from natkal.models import RecurrentModel, ravel

GAPS = (2, 8, 32, 64, 128)
UNITS, WINDOW, RECALLS, SEEDS = 16, 16, 600, 3
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
METHODS = (
    "natkal",
    "truncated_16_adam",
    "truncated_16_adam_standardised",
    "immediate_rmsprop",
    "immediate_rmsprop_standardised",
)


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


def network(gap: int, seed: int = 0, **options: Any) -> RecurrentModel:
    """The same network for everyone, the same for all gaps but for its first weights."""
    cell, key = nk.cells.rtu(UNITS), jax.random.key(gap + 1000 * seed)
    return nk.recurrent_network(key, cell, 3, nk.families.Bernoulli(), hidden=(16,), **options)


def memory(
    report: Callable[[str], None], gaps: tuple[int, ...] = GAPS, recalls: int = RECALLS, seeds: int = SEEDS
) -> dict[str, Any]:
    """For each gap, the log loss of the last fifth of the recalled bits under each method: the mean over seeds.

    A seed has its own stream and first weights, the same for all methods; `natkal_each` are natkal's losses one by one.
    """
    rows = []
    for gap in gaps:
        streams = [stream(gap, recalls, seed) for seed in range(seeds)]
        row: dict[str, Any] = {"gap": gap, "steps": len(streams[0][1]), "seeds": seeds}
        for method in METHODS:
            losses = []
            for seed, (inputs, targets) in enumerate(streams):
                report(f"gap {gap}, seed {seed}: {method}")
                losses.append(_loss(method, gap, seed, inputs, targets))
            row[method] = float(np.mean(losses))
            if method == "natkal":
                row["natkal_each"] = losses
        rows.append(row)
    return {"rows": rows, "methods": METHODS, "units": UNITS, "rates": RATES}


def _loss(method: str, gap: int, seed: int, inputs: np.ndarray, targets: np.ndarray) -> float:
    if method == "natkal":
        learner = nk.auto(network(gap, seed), curvature=nk.blocks(by="unit"))
        _, info = nk.run(learner, learner.init(), inputs, targets, keep="log_prob")
        return _last_fifth(np.asarray(info.log_prob), targets)
    truncated = "truncated" in method
    sensitivity = nk.sensitivity.truncated(WINDOW) if truncated else nk.sensitivity.immediate()
    model = network(gap, seed, state_correction=False, sensitivity=sensitivity)
    if method.endswith("standardised"):
        inputs = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    losses = jax.jit(jax.vmap(lambda rate: _descent(model, rate, truncated, inputs, targets)))(jnp.array(RATES))
    return min(_last_fifth(np.asarray(row), targets) for row in losses)


def _descent(model: RecurrentModel, rate: Any, momentum: bool, inputs: Any, targets: Any) -> Any:
    """Adam, or RMSprop, on -log p of the rows that have a target; log p of each row before it is learned."""

    def step(carried: Any, row: Any) -> tuple[Any, Any]:
        learned, held = carried
        u, y = row
        around = model.linearize(learned[0], held, u)

        def learn() -> tuple[Any, Any]:
            params, first, second, count = learned
            gradient = -around.pullback(model.outputs.score(around.raw, y)[None])[0]
            new_count = count + 1
            new_first = 0.9 * first + 0.1 * gradient if momentum else gradient
            new_second = 0.999 * second + 0.001 * jnp.square(gradient)
            scale = jnp.sqrt(new_second / (1 - 0.999**new_count)) + 1e-8
            move = -rate * (new_first / (1 - 0.9**new_count) if momentum else new_first) / scale
            moved = jax.tree.map(jnp.add, params, model.unravel(move))
            log_prob = model.outputs.log_prob(model.outputs.link(around.raw), y)
            return (moved, new_first, new_second, new_count), log_prob

        after, log_prob = jax.lax.cond(jnp.isnan(y), lambda: (learned, jnp.zeros_like(y)), learn)
        return (after, around.carry), log_prob

    zeros = jnp.zeros_like(ravel(model.params))
    start = ((model.params, zeros, zeros, jnp.zeros(())), model.init_carry(model.params))
    rows = (jnp.asarray(inputs, zeros.dtype), jnp.asarray(targets, zeros.dtype))
    return jax.lax.scan(step, start, rows)[1]


def _last_fifth(log_prob: np.ndarray, targets: np.ndarray) -> float:
    own = -log_prob[~np.isnan(targets)]
    return float(np.mean(own[-len(own) // 5 :]))
