"""What a step costs: exact RTRL and dense curvature against one read of the covariance, in the same run."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk

SIZES = (16, 32, 64, 128)
DIAGONAL_SIZES = (64, 128, 256, 512, 1024)
INPUTS = 4
REPEATS = 100
"""Calls of a few milliseconds each, so that the fastest was not disturbed by other work."""


def _best(function: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest of several calls, the first one (compilation) left out."""
    jax.block_until_ready(function())
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - started)
    return min(times)


def diagonal_cost(sizes: tuple[int, ...] = DIAGONAL_SIZES) -> dict[str, Any]:
    """Milliseconds per step of diagonal cells with exact sensitivities and a covariance for each unit, float32."""
    rows, exponents = [], {}
    for name in ("lru", "rtu"):
        own = []
        for units in sizes:
            cell = getattr(nk.cells, name)(units)
            model = nk.recurrent_network(jax.random.key(0), cell, INPUTS, nk.families.Gaussian(1.0))
            learner = nk.online(model, prior_cov=0.01, rates=nk.fading(1e-3), curvature=nk.blocks(by="unit"))
            seconds = _step_seconds(learner, max(8, 4_096 // units))
            own.append({"cell": name, "units": units, "parameters": model.size, "step_ms": 1e3 * seconds})
        exponents[name] = _exponent(own)
        rows += own
    return {"rows": rows, "growth_exponent_in_units": exponents}


def _step_seconds(learner: Any, steps: int) -> float:
    """Seconds of a step; the state is given away at each call, as in a stream."""
    inputs = jax.random.normal(jax.random.key(1), (steps, INPUTS))
    targets = jnp.sin(jnp.arange(steps, dtype=inputs.dtype))

    def many(state: Any) -> Any:
        return jax.lax.scan(lambda state, row: (learner.step(state, *row)[0], None), state, (inputs, targets))[0]

    compiled = jax.jit(many, donate_argnums=0)
    held = [learner.init()]

    def advance() -> Any:
        held[0] = compiled(held[0])
        return held[0].params

    return _best(advance, REPEATS) / steps


def _exponent(rows: list[dict[str, Any]]) -> float:
    """The power of the number of units that the time of a step grows with."""
    logs = np.log([[row["units"], row["step_ms"]] for row in rows])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]) if len(rows) > 1 else float("nan")


def cost(sizes: tuple[int, ...] = SIZES) -> dict[str, Any]:
    """Milliseconds per step of a tanh network of n units (4 inputs, one output, float32), and of one product P x."""
    rows = []
    for units in sizes:
        steps = max(2, 20_000 // units**2)
        model = nk.recurrent_network(jax.random.key(0), nk.cells.tanh(units), 4, nk.families.Gaussian(1.0))
        learner = nk.online(model, prior_cov=0.01, rates=nk.fading(1e-3))
        inputs = jax.random.normal(jax.random.key(1), (steps, 4))
        targets = jnp.zeros(steps)

        def many(state: Any, learner: nk.Learner = learner, inputs: Any = inputs, targets: Any = targets) -> Any:
            return jax.lax.scan(lambda state, row: (learner.step(state, *row)[0], None), state, (inputs, targets))[0]

        # The state is given away at each call, as in a stream: P is updated in place.
        compiled = jax.jit(many, donate_argnums=0)
        held = [learner.init(model.params)]

        def advance(held: list[Any] = held, compiled: Any = compiled) -> Any:
            held[0] = compiled(held[0])
            return held[0].params

        step_seconds = _best(advance, 5) / steps
        cov, vector = learner.covariance(held[0]), jnp.ones(model.size)
        product = jax.jit(lambda cov, vector: cov @ vector)
        read_seconds = _best(lambda product=product, cov=cov, vector=vector: product(cov, vector), 10)
        rows.append(
            {
                "units": units,
                "parameters": model.size,
                "step_ms": 1e3 * step_seconds,
                "read_ms": 1e3 * read_seconds,
                "ratio": step_seconds / read_seconds,
            }
        )
    return {"rows": rows, "growth_exponent_in_units": _exponent(rows)}
