"""Five series to forecast one step ahead: four real ones from installed packages, one generated."""

import csv
import gzip
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

LAGS = 8


class Series(NamedTuple):
    """A series with mean 0 and variance 1, as (inputs, targets): the last `LAGS` values and the next one."""

    name: str
    inputs: np.ndarray
    targets: np.ndarray


def _prepared(name: str, values: np.ndarray) -> Series:
    scaled = (values - values.mean()) / values.std()
    windows = np.lib.stride_tricks.sliding_window_view(scaled, LAGS + 1)
    return Series(name=name, inputs=windows[:, LAGS - 1 :: -1].copy(), targets=windows[:, LAGS].copy())


def _table(dataset: Any) -> Any:
    """A statsmodels dataset as its data frame."""
    return dataset.load_pandas().data


def sunspots() -> Series:
    """Yearly sunspot numbers, 1700 to 2008 (statsmodels)."""
    from statsmodels.datasets import sunspots

    return _prepared("sunspots", _table(sunspots)["SUNACTIVITY"].to_numpy(float))


def el_nino() -> Series:
    """Monthly sea surface temperature, 1950 to 2010 (statsmodels)."""
    from statsmodels.datasets import elnino

    return _prepared("El Nino", _table(elnino).iloc[:, 1:].to_numpy(float).ravel())


def co2() -> Series:
    """Weekly change of CO2 at Mauna Loa, 1958 to 2001, missing weeks interpolated (statsmodels)."""
    from statsmodels.datasets import co2

    level = _table(co2)["co2"].interpolate().to_numpy(float)
    return _prepared("CO2", np.diff(level))


def mackey_glass(length: int = 2000, delay: int = 17, every: int = 6) -> Series:
    """dx/dt = 0.2 x(t - 17) / (1 + x(t - 17)^10) - 0.1 x, by steps of 0.1, one value every 6 units of time."""
    fine, burn_in = 10, 500
    past = delay * fine
    x = np.full((length * every + burn_in) * fine + past, 1.2)
    for t in range(past, len(x) - 1):
        x[t + 1] = x[t] + (0.2 * x[t - past] / (1 + x[t - past] ** 10) - 0.1 * x[t]) / fine
    return _prepared("Mackey-Glass", x[past + burn_in * fine :: every * fine][:length])


def sea_surface(length: int = 4508) -> Series:
    """Sea surface temperature off the coast of Maine, every half hour from February 2016 on (bokeh_sampledata)."""
    table = resources.files("bokeh_sampledata") / "_data" / "sea_surface_temperature.csv.gz"
    rows = csv.DictReader(gzip.decompress(table.read_bytes()).decode().splitlines())
    return _prepared("sea surface", np.array([float(row["temperature (celsius)"]) for row in rows][:length]))


def all_series() -> list[Series]:
    """The five of the benchmark."""
    return [sunspots(), el_nino(), co2(), mackey_glass(), sea_surface()]
