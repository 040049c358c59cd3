"""Five optimisers on the same network and law, each over a grid, the best setting of each stream taken in hindsight.

Every setting of a rival runs side by side in one scan, on the inputs as they are and on inputs standardised over the
whole stream. A regression's targets are standardised over the whole stream too. Where the law has a dispersion it is
learned with the weights by the same optimiser, or set to the best constant in hindsight; the better of the two counts.
"""

import dataclasses
import itertools
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from benchmarks.learning import networks
from benchmarks.learning.networks import Raw
from benchmarks.optimisers import RATES, Memory, Rule, adamw, ivon, rmsprop, sgd
from benchmarks.streams.laws import standardised, target_scale
from benchmarks.streams.scores import Forecast, log_loss
from benchmarks.streams.stream import Stream
from natkal.typing import Array


@dataclasses.dataclass(frozen=True)
class Rival:
    """An update rule and the grid of its settings."""

    rule: Rule
    grid: dict[str, tuple[float, ...]]

    def settings(self) -> list[dict[str, float]]:
        """Every combination."""
        return [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]


RIVALS = {
    "SGD": Rival(sgd, {"rate": RATES, "momentum": (0.0, 0.9)}),
    "RMSprop": Rival(rmsprop, {"rate": RATES, "decay": (0.9, 0.99, 0.999)}),
    "Adam": Rival(adamw, {"rate": RATES, "beta1": (0.0, 0.9), "beta2": (0.99, 0.999), "weight_decay": (0.0,)}),
    "AdamW": Rival(adamw, {"rate": RATES, "beta1": (0.9,), "beta2": (0.999,), "weight_decay": (1e-3, 1e-2, 1e-1)}),
    "IVON": Rival(ivon, {"rate": RATES, "beta1": (0.9,), "beta2": (0.999, 0.99999), "h0": (0.1, 1.0)}),
}


class Best(NamedTuple):
    """A rival's best setting on a stream."""

    forecast: Forecast
    setting: str
    us_per_row: float


def best(rival: Rival, stream: Stream, seed: int = 0) -> Best:
    """Run the whole grid, keep the setting with the lowest log loss, and time it alone."""
    inputs = jnp.asarray(np.stack([stream.inputs, standardised(stream.inputs)]), jnp.float32)
    scale = target_scale(stream)
    targets = jnp.asarray((stream.targets - scale[0]) / scale[1] if stream.kind == "regression" else stream.targets)
    settings = list(_settings(rival, stream))
    columns = {name: jnp.asarray([s[name] for s in settings], jnp.float32) for name in settings[0]}

    def every(inputs: Array, targets: Array, columns: dict[str, Any]) -> Raw:
        return jax.vmap(lambda setting: _run(rival.rule, stream, inputs, targets, setting, seed))(columns)

    said = jax.tree.map(np.asarray, jax.jit(every)(inputs, targets, columns))
    found = [
        networks.forecast(stream, jax.tree.map(lambda leaf, n=n: leaf[n], said), setting["learned"] > 0, scale)
        for n, setting in enumerate(settings)
    ]
    winner = int(np.argmin([log_loss(one) for one in found]))
    return Best(found[winner], _label(settings[winner]), _timed(every, inputs, targets, columns, winner))


def _settings(rival: Rival, stream: Stream) -> Iterator[dict[str, float]]:
    ways = (1.0,) if stream.kind == "classification" else (1.0, 0.0)
    for setting, standard, learned in itertools.product(rival.settings(), (0.0, 1.0), ways):
        yield {**setting, "standard": standard, "learned": learned, "rows": float(len(stream.targets))}


def _run(rule: Rule, stream: Stream, inputs: Array, targets: Array, setting: dict[str, Any], seed: int) -> Raw:
    """One setting over the stream: predict, then learn."""
    theta, unravel = ravel_pytree(networks.start(stream, seed))
    zeros = jnp.zeros_like(theta)
    memory = Memory(first=zeros, second=zeros, steps=jnp.zeros(()), key=jax.random.key(seed))

    def step(carry: tuple[Array, Memory], row: tuple[Array, Array]) -> tuple[tuple[Array, Memory], Raw]:
        theta, memory = carry
        both, target = row
        u = jnp.where(setting["standard"] > 0, both[1], both[0])

        def law(theta: Array) -> Raw:
            return networks.predict(stream, unravel(theta), u, target, setting["learned"])

        counted = memory._replace(steps=memory.steps + 1)
        return rule(setting, theta, counted, jax.grad(lambda theta: -law(theta).log_prob)), law(theta)

    return jax.lax.scan(step, (theta, memory), (jnp.swapaxes(inputs, 0, 1), targets))[1]


def _label(setting: dict[str, float]) -> str:
    shown = [f"{name} {value:g}" for name, value in setting.items() if name not in ("standard", "learned", "rows")]
    return ", ".join([*shown, "standardised" if setting["standard"] else "raw"])


def _timed(every: Any, inputs: Array, targets: Array, columns: dict[str, Any], winner: int) -> float:
    """Microseconds for each row of one setting alone, the quicker of two runs over the first 500 rows."""
    alone = {name: column[winner : winner + 1] for name, column in columns.items()}
    run = jax.jit(every)
    rows = min(len(targets), 500)
    taken = []
    for _ in range(3):
        begin = time.perf_counter()
        jax.block_until_ready(run(inputs[:, :rows], targets[:rows], alone))
        taken.append(time.perf_counter() - begin)
    return 1e6 * min(taken[1:]) / rows
