"""What the state correction does on streams in order: recurrent filters of the default mixture, each by itself."""

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from benchmarks.streams.ordered import elec2, switching
from benchmarks.streams.stream import Stream
from natkal.models import fan_in_prior

CELLS: dict[str, Callable[[], Any]] = {
    "gru:16": lambda: nk.cells.gru(16),
    "rtu:32": lambda: nk.cells.rtu(32),
    "lru:64": lambda: nk.cells.lru(64),
}
PRIOR, FADINGS = 10.0, (0.0, 1e-4, 1e-3)


def standardised(inputs: np.ndarray) -> np.ndarray:
    """Each row by the mean and deviation of the rows up to it."""
    count = np.arange(1, len(inputs) + 1)[:, None]
    mean = np.cumsum(inputs, axis=0) / count
    variance = np.maximum(np.cumsum(inputs**2, axis=0) / count - mean**2, 0.0)
    return np.clip(np.where(variance > 1e-12, (inputs - mean) / np.sqrt(variance + 1e-12), 0.0), -30.0, 30.0)


def losses(name: str, stream: Stream, corrected: bool, held: bool, seed: int = 0) -> list[float]:
    """Log loss of a cell at each fading; from its inputs alone, no earlier label is among them."""
    cell = CELLS[name]()
    model = nk.recurrent_network(
        jax.random.key(seed),
        cell,
        stream.inputs.shape[1],
        nk.families.Bernoulli(),
        state_correction=corrected,
    )
    prior = jax.tree.map(lambda variance: PRIOR * variance, fan_in_prior(model.params))
    inputs = jnp.asarray(standardised(stream.inputs), jnp.float32)
    targets = jnp.asarray(stream.targets, jnp.float32)

    @jax.jit
    def run(fading: Any) -> Any:
        learner = nk.online(model, prior_cov=prior, rates=nk.fading(fading), curvature=nk.blocks(within_prior=held))
        step = lambda state, row: (lambda after, info: (after, info.log_prob))(*learner.step(state, *row))  # noqa: E731
        return -jnp.mean(jax.lax.scan(step, learner.init(), (inputs, targets))[1])

    return [float(run(jnp.float32(fading))) for fading in FADINGS]


def ordered(report: Callable[[str], None]) -> dict[str, Any]:
    """With and without the correction, and with it where forgetting may go beyond the prior."""
    streams = [switching(), *([elec2()] if os.environ.get("NATKAL_ORDERED") else [])]
    rows = []
    for stream in streams:
        for name in CELLS:
            report(f"{stream.name}, {name}")
            for label, corrected, held in (("on", True, True), ("off", False, True), ("on, not held", True, False)):
                found = losses(name, stream, corrected, held)
                row: dict[str, Any] = {"stream": stream.name, "cell": name, "correction": label}
                rows.append(row | {f"fading {fading:g}": loss for fading, loss in zip(FADINGS, found, strict=True)})
    return {"rows": rows, "fadings": FADINGS}
