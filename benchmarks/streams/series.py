"""Series: streams with a target and no other column."""

import csv
import gzip
from collections.abc import Callable
from importlib import resources
from typing import Any

import numpy as np

from benchmarks.streams.stream import Stream

MACKEY_GLASS_STEP = 0.1


def _series(name: str, values: np.ndarray, period: int) -> Stream:
    return Stream(name, "regression", {}, values, period=period)


def _frame(dataset: Any) -> Any:
    """A statsmodels dataset as its data frame."""
    return dataset.load_pandas().data


def sunspots() -> Stream:
    """Yearly sunspot numbers, 1700 to 2008 (statsmodels)."""
    from statsmodels.datasets import sunspots

    return _series("sunspots", _frame(sunspots)["SUNACTIVITY"].to_numpy(float), 11)


def el_nino() -> Stream:
    """Monthly sea surface temperature, 1950 to 2010 (statsmodels)."""
    from statsmodels.datasets import elnino

    return _series("El Nino", _frame(elnino).iloc[:, 1:].to_numpy(float).ravel(), 12)


def co2() -> Stream:
    """Weekly CO2 at Mauna Loa, 1958 to 2001, missing weeks interpolated (statsmodels)."""
    from statsmodels.datasets import co2

    return _series("CO2", _frame(co2)["co2"].interpolate().to_numpy(float), 52)


def mackey_glass(length: int = 2000, delay: int = 17, every: int = 6) -> Stream:
    """dx/dt = 0.2 x(t - 17) / (1 + x(t - 17)^10) - 0.1 x, by steps of 0.1, one value every 6 units of time."""
    fine, burn_in = round(1 / MACKEY_GLASS_STEP), 500
    past = delay * fine
    x = np.full((length * every + burn_in) * fine + past, 1.2)
    for t in range(past, len(x) - 1):
        x[t + 1] = x[t] + (0.2 * x[t - past] / (1 + x[t - past] ** 10) - 0.1 * x[t]) / fine
    return _series("Mackey-Glass", x[past + burn_in * fine :: every * fine][:length], 0)


def sea_surface(length: int = 4508) -> Stream:
    """Sea surface temperature off the coast of Maine, every half hour from February 2016 on (bokeh_sampledata)."""
    table = resources.files("bokeh_sampledata") / "_data" / "sea_surface_temperature.csv.gz"
    rows = csv.DictReader(gzip.decompress(table.read_bytes()).decode().splitlines())
    return _series("sea surface", np.array([float(row["temperature (celsius)"]) for row in rows][:length]), 48)


def airline_passengers() -> Stream:
    """Monthly passengers in thousands, 1949 to 1960 (river)."""
    from river import datasets  # pyright: ignore[reportMissingImports]

    return _series("airline passengers", np.array([target for _, target in datasets.AirlinePassengers()]), 12)


SERIES: dict[str, Callable[[], Stream]] = {
    "sunspots": sunspots,
    "CO2": co2,
    "El Nino": el_nino,
    "airline passengers": airline_passengers,
    "Mackey-Glass": mackey_glass,
    "sea surface": sea_surface,
}
