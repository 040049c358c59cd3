"""Times that can be compared: everything in one run, in turn, the best of several rounds."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def interleaved(functions: dict[str, Callable[[], Any]], rounds: int = 7) -> dict[str, float]:
    """Seconds of the fastest call of each, one after the other in every round; the first round (compiling) is out."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(rounds + 1):
        for name, function in functions.items():
            started = time.perf_counter()
            jax.block_until_ready(function())
            if turn:
                times[name].append(time.perf_counter() - started)
    return {name: min(seconds) for name, seconds in times.items()}


def one_read(matrix: jax.Array) -> dict[str, Callable[[], Any]]:
    """Ways to read a matrix once, of which the fastest is the floor: products by XLA and NumPy, and a sum."""
    product, total, vector = jax.jit(lambda matrix, vector: matrix @ vector), jax.jit(jax.numpy.sum), matrix[0]
    ways: dict[str, Callable[[], Any]] = {
        "read: product": lambda: product(matrix, vector),
        "read: sum": lambda: total(matrix),
    }
    if jax.default_backend() == "cpu":
        host = np.asarray(matrix)
        ways["read: NumPy"] = lambda: host @ host[0]
    return ways


def floor(times: dict[str, float]) -> float:
    """The fastest of the reads among these times."""
    return min(seconds for name, seconds in times.items() if name.startswith("read: "))


class Held:
    """A state that every call gives away and replaces, as in a stream: matrices are updated in place."""

    def __init__(self, advance: Callable[..., Any], state: Any, *arguments: Any) -> None:
        self.compiled_in = time.perf_counter()
        self.compiled = jax.jit(advance, donate_argnums=0).lower(state, *arguments).compile()
        self.compiled_in = time.perf_counter() - self.compiled_in
        self.state, self.arguments = state, arguments

    def __call__(self) -> Any:
        """One more call."""
        self.state = self.compiled(self.state, *self.arguments)
        return self.state

    def temporary_bytes(self) -> int:
        """What a call needs beside its state and arguments."""
        analysis = self.compiled.memory_analysis()
        return 0 if analysis is None else int(analysis.temp_size_in_bytes)
