"""The rows after the last one of a run: which columns are known of them, and the forecast of each target and key."""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from natkal.errors import StreamError
from natkal.forecasting.calendar import Value
from natkal.forecasting.combination import Kept
from natkal.forecasting.paths import combined, mixture, summary, table_paths
from natkal.reading.source import RowSource
from natkal.tables.schema import cells
from natkal.tables.schema.rows import Column, Position, Rows

if TYPE_CHECKING:
    from natkal.runs.session import Session

SERIES_AT_ONCE = 64
"""So many keys are forecast together: the paths of all keys at once need not fit into memory."""
VERSIONS = 64
"""How many stretches of the recent rows stand for columns that are not known ahead."""


class Coming(NamedTuple):
    """The rows to come of one key: versions of their numbers, the moment of each, and the columns not known."""

    windows: np.ndarray | None
    times: list[Any]
    unknown: list[str]


class Forecast(NamedTuple):
    """The forecast of one target of one key: paths (n, horizon), what is told of each step, and its rows to come."""

    target: int
    key: str
    paths: np.ndarray
    steps: list[dict[str, Any]]
    coming: Coming


def forecasts(
    session: "Session", horizon: int, *, future: Mapping[str, Rows] | None = None, key: str | None = None
) -> Iterator[Forecast]:
    """Every target of every key (or of one), each `horizon` rows ahead of its own last row."""
    keyed = session.schema.key is not None
    if key is not None and not keyed:
        raise StreamError("--key: the run has no key column")
    if key is not None and key not in session.learner.keys:
        raise StreamError(f"--key: {key!r} was never seen")
    asked = [key] if key is not None else list(session.learner.keys) if keyed else [""]
    targets = range(len(session.learner.targets))
    for first in range(0, len(asked), SERIES_AT_ONCE):
        part = asked[first : first + SERIES_AT_ONCE]
        rows = [coming_rows(session, own, horizon, (future or {}).get(own)) for own in part]
        series = [(own, coming, target) for own, coming in zip(part, rows, strict=True) for target in targets]
        drawn = [
            mixture(session.learner, horizon, coming.windows, key=own if keyed else None, target=target)
            for own, coming, target in series
        ]
        for (own, coming, target), paths in zip(series, combined(drawn), strict=True):
            yield Forecast(target, own, paths, summary(paths, session.learner.loop.tasks[target]), coming)


def warnings_of(session: "Session", made: Sequence[Forecast], future: Mapping[str, Rows] | None) -> list[str]:
    """What to know of forecasts: columns that were not known ahead, and steps that are rows and not moments."""
    found = []
    unknown = list(dict.fromkeys(name for one in made for name in one.coming.unknown))
    if unknown:
        file = next(iter(future.values())).file if future else None
        way = f"add them to {file}" if file else "--future gives them"
        found.append(f"{', '.join(unknown)}: not known ahead, so recent rows stand for them; {way}")
    repeated = session.clock.repeated("") if session.schema.key is None else []
    if repeated:
        names = [feature.name for feature in session.schema.features if feature.kind == "category"]
        example = f" such as {names[0]}" if names else ""
        found.append(
            f"{', '.join(repeated)}: several rows have the same moment, and each step of the forecast is one row; "
            f"learn with --key and a column{example} for a forecast of each series"
        )
    return found


def quick_paths(session: "Session", horizon: int, key: str, rounds: int, kept: Kept) -> np.ndarray:
    """Fewer paths, for the forecast that is scored with every row: (n, horizon) of the first target."""
    coming = coming_rows(session, key, horizon, None)
    keyed = session.schema.key is not None
    own = key if keyed else None
    return table_paths(session.learner, horizon, coming.windows, key=own, rounds=rounds, often=True, kept=kept)


def coming_rows(session: "Session", key: str, horizon: int, given: Rows | None) -> Coming:
    """What is known of the next rows: the columns given, those that go on by themselves, stretches of the others."""
    features = session.schema.features
    if not features:
        return Coming(np.zeros((1, horizon, 0)), [], [])
    columns: dict[str, Any] = dict(session.clock.ahead(key, horizon))
    if given is not None:
        if len(given) < horizon:
            whose = f" of key {key!r}" if key else ""
            raise StreamError(
                f"{given.file}: has {len(given):,} rows{whose}, and --horizon is {horizon:,}; "
                f"give a row for each step, or --horizon {len(given):,}"
            )
        columns |= {name: given.columns[name][:horizon] for name in given.columns}
    known = {name: list(values) for name, values in columns.items() if name in {feature.name for feature in features}}
    unknown = [feature.name for feature in features if feature.name not in known]
    times = next((list(columns[f.name]) for f in features if f.kind == "time" and f.name in columns), [])
    if not times:
        times = next((list(values) for name, values in session.clock.ahead(key, horizon).items() if name in known), [])
    if not known:
        return Coming(_stretches(session, horizon), [_moment(value) for value in times], unknown)
    table: dict[str, Column] = {name: [_cell(value) for value in values] for name, values in known.items()}
    if session.schema.key is not None:
        table[session.schema.key] = [key] * horizon
    file = "the rows to come" if given is None else given.file
    rows = Rows(file, table, np.arange(1, horizon + 1), [], 0, Position(0, 0, 1))
    encoded = session.encoder.encode(rows, grow=False)
    if len(encoded.inputs) < horizon:
        first = encoded.rejects[0]
        raise StreamError(f"{file}, row {first.line}: {first.reason}")
    numbers = encoded.inputs[None]
    if unknown:
        stretches = _stretches(session, horizon)
        if stretches is not None:
            missing = np.isin(session.encoder.owners, unknown)
            numbers = np.where(missing[None, None], stretches, numbers)
    return Coming(numbers, [_moment(value) for value in times], unknown)


def future_rows(session: "Session", source: RowSource) -> dict[str, Rows]:
    """The rows of a file of known columns, key by key (under "" where there are no keys)."""
    blocks = []
    while (rows := source.read()) is not None:
        if rows.rejects:
            raise StreamError(f"{rows.file}, line {rows.rejects[0].line}: {rows.rejects[0].reason}")
        blocks.append(rows)
    if not blocks:
        raise StreamError("--future: the file has no rows")
    names = [name for name in blocks[0].columns if all(name in block.columns for block in blocks)]
    columns = {name: [cell for block in blocks for cell in block.columns[name]] for name in names}
    count = len(columns[names[0]]) if names else 0
    key = session.schema.key
    if key is not None and key not in columns:
        raise StreamError(
            f"--future: {blocks[0].file} has no column {key!r}, the keys of the run; add it, with a key in each row"
        )
    owners = ["" if key is None else cells.label(cell) or "" for cell in (columns[key] if key else [None] * count)]
    used = {feature.name for feature in session.schema.features}
    if not used & set(columns):
        raise StreamError(
            f"--future: {blocks[0].file} has none of the columns that were learned ({', '.join(sorted(used))}); "
            f"it has {', '.join(columns)}; rename its columns, or leave --future out"
        )
    found = {}
    for own in dict.fromkeys(owners):
        places = [place for place, owner in enumerate(owners) if owner == own]
        part: dict[str, Column] = {name: [values[place] for place in places] for name, values in columns.items()}
        found[own] = Rows(blocks[0].file, part, np.array(places) + 1, [], 0, blocks[-1].position)
    return found


def _stretches(session: "Session", horizon: int) -> np.ndarray | None:
    """Consecutive recent rows, from several starts: what columns that are not known may look like."""
    recent = session.recent_inputs
    if not len(recent):
        return None
    starts = np.linspace(0, max(len(recent) - horizon, 0), VERSIONS).astype(int)
    places = (starts[:, None] + np.arange(horizon)[None]) % len(recent)
    return recent[places]


def _moment(value: Any) -> Any:
    """A cell of a column of time as text; a whole number without a point."""
    if isinstance(value, datetime.datetime):
        return value.date().isoformat() if value.time() == datetime.time() else value.isoformat()
    return int(value) if isinstance(value, float) and value == int(value) else value


def _cell(value: Value | Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.datetime) else value
