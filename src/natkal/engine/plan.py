"""What each curvature costs for a given network, before anything is allocated, and which one to take."""

import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.byte_sizes import readable
from natkal.curvature import Curvature, Dense, Prior, blocks, dense, diagonal, kronecker, low_rank, quasi_diagonal
from natkal.engine.prior import layout_of
from natkal.models import Model

CANDIDATES: dict[str, Curvature] = {
    "dense": dense(),
    'blocks(by="layer")': blocks(by="layer"),
    'blocks(by="neuron")': blocks(by="neuron"),
    "kronecker()": kronecker(),
    "low_rank(10)": low_rank(10),
    "quasi_diagonal()": quasi_diagonal(),
    "diagonal()": diagonal(),
}
"""By what they keep, most first."""

PREFERRED = ("dense", "kronecker()", "quasi_diagonal()", "diagonal()")
DENSE_WORK = 1e9
"""Above so many operations per observation the dense filter is not recommended even where it fits."""


class Cost(NamedTuple):
    """Bytes kept, bytes a step needs at once, operations per observation, seconds per step where measured.

    `kernel` is how the dense matrix would be kept and moved here; None for other structures.
    """

    name: str
    state_bytes: int
    peak_bytes: int
    work: float
    seconds: float | None
    fits: bool
    kernel: str | None = None


class Plan(NamedTuple):
    """What every curvature costs for `parameters` parameters, within `memory` bytes, and the one recommended."""

    parameters: int
    memory: int
    costs: tuple[Cost, ...]
    recommended: str | None

    def __str__(self) -> str:
        lines = [f"{self.parameters:,} parameters, {readable(self.memory)} of memory"]
        lines.append(f"{'curvature':22}{'keeps':>10}{'step needs':>12}{'work':>10}{'time':>11}")
        for cost in self.costs:
            seconds = "" if cost.seconds is None else f"{cost.seconds * 1e3:.2f} ms"
            note = "" if cost.kernel is None else f"  {cost.kernel} kernel"
            note += "" if cost.fits else "  does not fit"
            mark = "  <- take this" if cost.name == self.recommended else ""
            lines.append(
                f"{cost.name:22}{readable(cost.state_bytes):>10}{readable(cost.peak_bytes):>12}{cost.work:>10.1e}"
                f"{seconds:>11}{note}{mark}"
            )
        return "\n".join(lines)


def plan(model: Model, *, memory: int | None = None, inputs: Any = None, target: Any = None) -> Plan:
    """A table of curvatures for this model: memory, work, time; and a recommendation.

    `memory` is the budget in bytes, what is free now unless given. With one row of `inputs` and one `target` the
    curvatures that fit are timed here and now; without, nothing runs and nothing is allocated.
    """
    budget = available_memory() if memory is None else memory
    costs = []
    for name, curvature in CANDIDATES.items():
        state, peak, work = estimate(model, curvature)
        fits = peak <= budget
        seconds = _measure(model, curvature, inputs, target) if fits and inputs is not None and work <= 1e10 else None
        kernel = curvature.kernel_for(model.size).name if isinstance(curvature, Dense) else None
        costs.append(Cost(name, state, peak, work, seconds, fits, kernel))
    affordable = {cost.name: cost for cost in costs if cost.fits}
    if "dense" in affordable and affordable["dense"].work > DENSE_WORK:
        del affordable["dense"]
    recommended = next((name for name in PREFERRED if name in affordable), None)
    return Plan(parameters=model.size, memory=budget, costs=tuple(costs), recommended=recommended)


def estimate(model: Model, curvature: Curvature) -> tuple[int, int, float]:
    """State; what a step needs at once (state twice, rows, their images and products); multiply-adds, roughly."""
    state = state_bytes(model, curvature)
    itemsize = _variances(model).dtype.itemsize
    rows = model.outputs.raw_dim * model.size * itemsize
    # every row meets every number of the state (low rank: in its inner products) and every row (the gram matrix)
    work = model.outputs.raw_dim * (state / itemsize + model.outputs.raw_dim * model.size)
    return state, 2 * state + 3 * rows + 2 * model.size * itemsize, work


def check_fits(model: Model, curvature: Curvature) -> None:
    """Refuse a curvature whose state alone is larger than the memory that is free, before allocating it."""
    if model.size < 10_000:  # at most 800 MB, whatever the structure
        return
    mesh = getattr(curvature, "mesh", None)
    hosts = 1 if mesh is None else len({device.process_index for device in mesh.devices.flat})
    needed, free = state_bytes(model, curvature) // hosts, available_memory()
    if needed > free:
        raise ValueError(
            f"curvature: {type(curvature).__name__} needs {readable(needed)} for {model.size:,} parameters, "
            f"{readable(free)} are free\n{plan(model, memory=free)}"
        )


def state_bytes(model: Model, curvature: Curvature) -> int:
    """What the curvature's state takes, from shapes alone."""
    shapes = jax.eval_shape(
        lambda cov: curvature.init(Prior(cov=cov, kept=None, layout=layout_of(model))), _variances(model)
    )
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def available_memory() -> int:
    """Free bytes on the default device, or in main memory."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 2**63 - 1


def _variances(model: Model) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((model.size,), jnp.result_type(*jax.tree.leaves(model.params)))


def _measure(model: Model, curvature: Curvature, inputs: Any, target: Any, steps: int = 5) -> float:
    """Seconds per step, the quickest of three short scans."""
    from natkal.engine.learner import online

    learner = online(model, curvature=curvature)
    rows = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (steps, *jnp.shape(leaf))), (inputs, jnp.asarray(target)))
    scan = jax.jit(lambda state, rows: jax.lax.scan(lambda s, row: (learner.step(s, *row)[0], None), state, rows)[0])
    state = learner.init(model.params)
    jax.block_until_ready(scan(state, rows))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(scan(state, rows))
        times.append((time.perf_counter() - start) / steps)
    return min(times)
