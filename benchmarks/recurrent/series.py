"""Five series to forecast one step ahead from the last eight values: four real ones, one generated."""

from typing import NamedTuple

import numpy as np

from benchmarks.streams import series

LAGS = 8


class Series(NamedTuple):
    """A series with mean 0 and variance 1, as (inputs, targets): the last `LAGS` values and the next one."""

    name: str
    inputs: np.ndarray
    targets: np.ndarray


def prepared(name: str, values: np.ndarray) -> Series:
    """The series of these values."""
    scaled = (values - values.mean()) / values.std()
    windows = np.lib.stride_tricks.sliding_window_view(scaled, LAGS + 1)
    return Series(name=name, inputs=windows[:, LAGS - 1 :: -1].copy(), targets=windows[:, LAGS].copy())


def mackey_glass(length: int = 2000) -> Series:
    """The generated one."""
    return prepared("Mackey-Glass", series.mackey_glass(length).targets)


def all_series() -> list[Series]:
    """The five of the benchmark; of CO2 the weekly change."""
    found = [series.sunspots(), series.el_nino(), series.co2(), series.mackey_glass(), series.sea_surface()]
    return [
        prepared(one.name, np.diff(one.targets) if one.name == "CO2" else one.targets.astype(float)) for one in found
    ]
