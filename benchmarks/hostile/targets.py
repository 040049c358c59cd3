"""Numbers to predict that are outliers, hardly move at first, change their scale, or have no law."""

import numpy as np

from benchmarks.hostile.base import ROWS, Maker, Random, Rows, inputs, numbers, replaced, smooth, time
from benchmarks.streams.stream import numbered

MIDDLE = ROWS // 2


def _outliers(share: float, size: float) -> Maker:
    def make(rng: Random) -> Rows:
        where = rng.uniform(size=ROWS) < share
        return numbers(rng, lambda y: replaced(y, where, size * rng.choice([-1, 1], size=where.sum())))

    return make


def _at(place: object, value: float) -> Maker:
    return lambda rng: numbers(rng, lambda y: replaced(y, place, value))


def _noise(draw: object) -> Maker:
    def make(rng: Random) -> Rows:
        x = inputs(rng)
        return Rows(numbered(x), smooth(x) + draw(rng, x))  # pyright: ignore[reportCallIssue]

    return make


def _bursts(rng: Random) -> Rows:
    where = np.concatenate([np.arange(start, start + 20) for start in range(500, ROWS, 500)])
    return numbers(rng, lambda y: replaced(y, where, 100.0))


OUTLIERS: dict[str, Maker] = {
    "one target of 1e6": _at(MIDDLE, 1e6),
    "one target of 1e12": _at(MIDDLE, 1e12),
    "first target 1e6": _at(0, 1e6),
    "second target 1e6": _at(1, 1e6),
    "10 percent of targets +-50": _outliers(0.1, 50.0),
    "1 percent of targets +-1e4": _outliers(0.01, 1e4),
    "bursts of 20 targets of 100": _bursts,
    "-999 for 5 percent of targets": lambda rng: numbers(
        rng, lambda y: replaced(y, rng.uniform(size=ROWS) < 0.05, -999.0)
    ),
    "Cauchy noise": _noise(lambda rng, x: rng.standard_cauchy(ROWS)),
    "Student noise, 1.5 degrees": _noise(lambda rng, x: rng.standard_t(1.5, ROWS)),
    "noise of spread exp(3 x)": _noise(lambda rng, x: np.exp(3 * x[:, 4]) * rng.normal(size=ROWS)),
    "lognormal noise, sigma 3": _noise(lambda rng, x: rng.lognormal(0, 3, ROWS)),
}

BEGINNINGS: dict[str, Maker] = {
    "first two targets equal": lambda rng: numbers(rng, lambda y: replaced(y, 1, y[0])),
    "first two targets nearly equal": lambda rng: numbers(rng, lambda y: replaced(y, 1, y[0] + 1e-9)),
    "first ten targets nearly equal": lambda rng: numbers(
        rng, lambda y: replaced(y, slice(10), 1.0 + 1e-9 * np.arange(10))
    ),
    "first ten targets equal": _at(slice(10), 1.0),
    "first hundred targets zero": _at(slice(100), 0.0),
    "first thousand targets 1e-3 of the rest": lambda rng: numbers(
        rng, lambda y: replaced(y, slice(1000), 1e-3 * y[:1000])
    ),
    "constant, then a jump": lambda rng: Rows(numbered(inputs(rng)), np.where(np.arange(ROWS) < MIDDLE, 3.0, 5.0)),
    "constant to the end": lambda rng: Rows(numbered(inputs(rng)), np.full(ROWS, 3.5)),
    "first inputs of 1e9": lambda rng: _first_inputs(rng),
}


def _first_inputs(rng: Random) -> Rows:
    x = inputs(rng)
    targets = smooth(x) + 0.5 * rng.normal(size=ROWS)
    return Rows(numbered(replaced(x, slice(2), 1e9 * x[:2])), targets)


def _of_time(values: object) -> Maker:
    """Targets that follow the row number and not the inputs."""
    return lambda rng: Rows(numbered(inputs(rng)), values(rng))  # pyright: ignore[reportCallIssue]


def _sorted(rng: Random) -> Rows:
    x = inputs(rng)
    y = smooth(x) + 0.5 * rng.normal(size=ROWS)
    order = np.argsort(y)
    return Rows(numbered(x[order]), y[order])


SCALES: dict[str, Maker] = {
    "scale grows by 1e6": lambda rng: numbers(rng, lambda y: y * 1e6 ** time()),
    "scale falls by 1e6": lambda rng: numbers(rng, lambda y: y * 1e6 ** -time()),
    "scale jumps by 1e6": lambda rng: numbers(rng, lambda y: y * np.where(time() < 0.5, 1.0, 1e6)),
    "scale drops by 1e6": lambda rng: numbers(rng, lambda y: y * np.where(time() < 0.5, 1.0, 1e-6)),
    "offset of 1e9": lambda rng: numbers(rng, lambda y: y + 1e9),
    "targets of size 1e-12": lambda rng: numbers(rng, lambda y: 1e-12 * y),
    "targets of size 1e12": lambda rng: numbers(rng, lambda y: 1e12 * y),
    "whole numbers near 2^53": lambda rng: numbers(rng, lambda y: np.round(2.0**52 + 2.0**48 * y)),
    "level shifts of 100": lambda rng: numbers(rng, lambda y: y + 100 * (np.arange(ROWS) // 500 % 3)),
    "nine in ten targets zero": lambda rng: numbers(rng, lambda y: replaced(y, rng.uniform(size=ROWS) < 0.9, 0.0)),
    "nine in ten targets missing": lambda rng: numbers(
        rng, lambda y: replaced(y, rng.uniform(size=ROWS) < 0.9, np.nan)
    ),
}

SHAPES: dict[str, Maker] = {
    "random walk": _of_time(lambda rng: np.cumsum(rng.normal(size=ROWS))),
    "sawtooth": _of_time(lambda rng: (np.arange(ROWS) % 50) / 50.0),
    "sine of period 24": _of_time(lambda rng: np.sin(2 * np.pi * np.arange(ROWS) / 24)),
    "alternating": _of_time(lambda rng: np.where(np.arange(ROWS) % 2, 1.5, -1.5)),
    "noise alone": _of_time(lambda rng: rng.normal(size=ROWS)),
    "sorted": _sorted,
    "two values, 0.5 and 1e6": _of_time(lambda rng: np.where(rng.uniform(size=ROWS) < 0.5, 0.5, 1e6)),
}
