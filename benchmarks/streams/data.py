"""Every stream by name, in groups.

On a machine without the packages that hold the data, the environment variable `NATKAL_STREAMS` names a file that
`save(FILE)` wrote on a machine with them.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable

import numpy as np

from benchmarks.streams.generated import GENERATED
from benchmarks.streams.ordered import ORDERED
from benchmarks.streams.series import SERIES
from benchmarks.streams.stream import Stream
from benchmarks.streams.tables import STILL, TABLES
from benchmarks.streams.uci import OUTLIERS, UCI

GROUPS: dict[str, dict[str, Callable[[], Stream]]] = {
    "tables": TABLES,
    "generated": GENERATED,
    "uci": UCI,
    "outliers": OUTLIERS,
    "series": SERIES,
    "ordered": ORDERED,
}
MAKERS = {name: make for group in (*GROUPS.values(), STILL) for name, make in group.items()}


def stream(name: str) -> Stream:
    """One stream by name, from its package or from the file that `NATKAL_STREAMS` names."""
    prepared = os.environ.get("NATKAL_STREAMS")
    if not prepared:
        return MAKERS[name]()
    with np.load(prepared) as file:
        fields = {key.split("/", 2)[1]: value for key, value in file.items() if key.startswith(f"{name}/")}
        columns = {key.split("/", 2)[2]: file[key] for key in file if key.startswith(f"{name}/column/")}
    whole = {key: tuple(fields[key].tolist()) for key in ("hidden", "drifts", "labels")}
    return Stream(
        name=name,
        kind=str(fields["kind"]),  # pyright: ignore[reportArgumentType]
        columns=columns,
        targets=fields["targets"],
        period=int(fields["period"]),
        **whole,
    )


def save(path: str, names: Iterable[str] = (*TABLES, *STILL)) -> None:
    """Write streams to a file that `NATKAL_STREAMS` may name elsewhere."""
    arrays: dict[str, np.ndarray] = {}
    for found in map(stream, names):
        for field in dataclasses.fields(found):
            value = getattr(found, field.name)
            if field.name == "columns":
                arrays |= {f"{found.name}/column/{name}": column for name, column in value.items()}
            elif field.name != "name":
                arrays[f"{found.name}/{field.name}"] = np.asarray(value)
    with open(path, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
