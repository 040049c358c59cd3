"""What a checkpoint holds of a session, and the parts of a session from it, each checked before it is used."""

import dataclasses
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import natkal
from natkal.errors import CheckpointError, StreamError
from natkal.forecasting.calendar import TAIL, Clock
from natkal.runs.forecast_scores import ForecastScores
from natkal.runs.make_learner import table_kind
from natkal.runs.metrics import Metrics
from natkal.settings.options import check_options
from natkal.settings.settings import Counts, Settings
from natkal.storage.file import StorageError, check_arrays
from natkal.tables.encode.encoder import Encoder
from natkal.tables.engine.batch import TableBatch, stacked
from natkal.tables.learner.architectures import NAMED_SIZES
from natkal.tables.schema.infer import Schema
from natkal.tables.schema.rows import Position
from natkal.tables.table import TableLearner

if TYPE_CHECKING:
    from natkal.runs.session import Session

FORMAT = 7
OPEN_ENDED = ("metrics.open", "metrics.recent", "recent_inputs")
"""Arrays whose number of rows only they themselves know."""
F8 = np.dtype("<f8")
MAX_HORIZON = 10_000
"""The most rows ahead that a run scores."""


class Kept(NamedTuple):
    """Everything that decides the next row."""

    settings: Settings
    encoder: Encoder
    learner: TableLearner
    metrics: Metrics
    predicted: list[list[str]]
    files: list[str]
    counts: Counts
    reasons: dict[str, int]
    position: Position
    ended: bool
    offsets: dict[str, int]
    sequences: dict[str, str]
    queue: deque[TableBatch]
    held: OrderedDict[str, np.ndarray]
    early: OrderedDict[str, np.ndarray]
    recent_inputs: np.ndarray
    clock: Clock
    forecasts: ForecastScores | None
    outputs: dict[str, Any]


def header(session: "Session") -> dict[str, Any]:
    """All that is not numbers."""
    return {
        "format": FORMAT,
        "natkal": natkal.__version__,
        "jax": version("jax"),
        "files": session.files,
        "settings": dataclasses.asdict(session.settings),
        "schema": session.schema.to_json(),
        "vocabularies": session.encoder.vocabularies,
        "learner": session.learner.header(),
        "counts": dataclasses.asdict(session.counts),
        "reasons": session.reasons,
        "position": list(session.position),
        "ended": session.ended,
        "offsets": session.offsets,
        "outputs": (session.kept or {}) | {name: output.kept for name, output in session.outputs.items()},
        "sequences": session.sequences,
        "held": list(session.held),
        "early": list(session.early),
        "queued": [0 if row.slot is None else int(row.slot[0]) for row in session.queue],
        "members": session.metrics.members,
        "predicted": session.format.classes,
        "clock": session.clock.state(),
        "forecasts": None if session.forecasts is None else session.forecasts.header(),
        "metrics": {
            "row": session.metrics.row,
            "targets": [
                {"totals": {name: repr(value) for name, value in part.totals.items()}, "scored": part.scored}
                for part in session.metrics.parts
            ],
        },
    }


def arrays(session: "Session") -> dict[str, np.ndarray]:
    """All that is numbers."""
    width = session.learner.past_columns + session.encoder.width
    found = {
        "metrics.open": session.metrics.open,
        "metrics.recent": session.metrics.recent,
        "recent_inputs": session.recent_inputs,
        "held": np.stack([_wide(row, width) for row in session.held.values()])
        if session.held
        else np.zeros((0, width)),
        "early": np.stack([*session.early.values()]) if session.early else np.zeros((0, len(session.schema.targets))),
        "queue": _packed(session),
        **session.learner.arrays(),
    }
    if session.forecasts is not None:
        found |= session.forecasts.arrays()
    for position, part in enumerate(session.metrics.parts):
        found |= {f"metrics.{position}.{name}": value for name, value in part.state.items()}
    return found


def read(path: Path, head: Mapping[str, Any], stored: Mapping[str, np.ndarray], model: str | None) -> Kept:
    """The parts of a session from a checkpoint that was read whole; its arrays must be those its settings call for.

    A file never chooses what code to run: a checkpoint of the user's own model loads only if `model` names it too.
    """
    if "learner" in head and "format" not in head:
        raise CheckpointError(f"{path}: is the state of a learner, not a run; nk.load reads it")
    if "decisions" in head:
        raise CheckpointError(f"{path}: is a run of natkal decide, which natkal decide, report and serve take")
    if head.get("format") != FORMAT:
        raise CheckpointError(f"{path}: format {head.get('format')!r}, this natkal reads {FORMAT}")
    try:
        settings = _settings(head["settings"])
        check_options(settings.options)
        if settings.options.users_own and settings.model != model:
            raise CheckpointError(
                f"{path}: was learned by {settings.model}; give --model {settings.model} to run that code"
            )
        encoder = Encoder(Schema.from_json(head["schema"]), _texts(head["vocabularies"], _words))
        keyed = encoder.schema.key is not None
        _check_model(path, head["learner"], stored)
        _check_learner(path, head["learner"], encoder, stored)
        learner = table_kind(settings).from_header(
            settings.options, head["learner"], keyed=keyed, limits=settings.predictions is not None
        )
        if learner.keys and not keyed:
            raise CheckpointError(f"{path}: its header has keys and no key column")
        predicted = [_words(names) for names in head["predicted"]]
        members = [_text(name) for name in head["members"]]
        metrics = Metrics(encoder.schema.targets, members, settings.metrics_every)
        metrics.row = _whole(head["metrics"]["row"])
        early = [_text(name) for name in head["early"]]
        held, queued = [_text(name) for name in head["held"]], [_whole(slot) for slot in head["queued"]]
        found = head["metrics"]["targets"]
        totals = [
            ({name: float(value) for name, value in part["totals"].items()}, _whole(part["scored"])) for part in found
        ]
        counts = Counts(**{name: _whole(value) for name, value in head["counts"].items()})
        position = Position(*(_whole(value) for value in head["position"]))
        ended = head["ended"] is True
        offsets = _texts(head["offsets"], _whole)
        files = [_text(name) for name in head["files"]]
        outputs = _texts(head["outputs"], lambda end: end if isinstance(end, dict) else _whole(end))
        reasons, sequences = _texts(head["reasons"], _whole), _texts(head["sequences"], _text)
        if (
            len(totals) != len(metrics.parts)
            or len(predicted) != len(metrics.parts)
            or any(len(set(names)) != len(names) for names in (held, early))
        ):
            raise ValueError("its parts do not fit together")
        clock = Clock({_text(key): _tails(columns) for key, columns in head["clock"].items()})
        template = _template(encoder, learner, metrics, stored, len(held), len(queued), len(early))
        forecasts = None
        if settings.horizon is not None:
            if not 1 <= settings.horizon <= MAX_HORIZON:
                raise ValueError(f"its horizon is {settings.horizon}")
            forecasts = ForecastScores(settings.horizon)
            waiting = [(_text(key), _whole(after)) for key, after in head["forecasts"]["waiting"]]
            _texts(head["forecasts"]["rows"], _whole)
            template |= forecasts.template(len(waiting))
        check_arrays(path, stored, template)
    except StorageError as error:
        raise CheckpointError(str(error)) from error
    except StreamError as error:
        raise CheckpointError(f"{path}: {error}" if not str(error).startswith(str(path)) else str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise CheckpointError(f"{path}: its header lacks or contradicts what a run needs ({error})") from error
    if forecasts is not None:
        forecasts.restore(head["forecasts"], stored["forecasts.totals"], stored["forecasts.waiting"])
    learner.restore({name: stored[name] for name in learner.template()})
    metrics.open, metrics.recent = stored["metrics.open"].copy(), stored["metrics.recent"].copy()
    for number, (part, (sums, scored)) in enumerate(zip(metrics.parts, totals, strict=True)):
        part.restore(sums, scored, {name: stored[f"metrics.{number}.{name}"] for name in part.state})
    return Kept(
        settings=settings,
        encoder=encoder,
        learner=learner,
        metrics=metrics,
        predicted=predicted,
        files=files,
        counts=counts,
        reasons=reasons,
        position=position,
        ended=ended,
        offsets=offsets,
        sequences=sequences,
        queue=_unpacked(learner, stored["queue"], queued),
        held=OrderedDict(zip(held, stored["held"].copy(), strict=True)),
        early=OrderedDict(zip(early, stored["early"].copy(), strict=True)),
        recent_inputs=stored["recent_inputs"].copy(),
        clock=clock,
        forecasts=forecasts,
        outputs=outputs,
    )


def _settings(given: Mapping[str, Any]) -> Settings:
    """The settings, each checked against its declared type."""
    types = {field.name: str(field.type) for field in dataclasses.fields(Settings)}
    values = {}
    for name, value in given.items():
        kind = types[name]
        if isinstance(value, list):
            value = tuple(_text(entry) for entry in value)
        good = (
            (value is None and "None" in kind)
            or (kind.startswith("tuple") and isinstance(value, tuple))
            or ("str" in kind and "tuple" not in kind and isinstance(value, str))
            or ("bool" in kind and isinstance(value, bool))
            or ("int" in kind and isinstance(value, int) and not isinstance(value, bool))
            or ("float" in kind and isinstance(value, int | float) and not isinstance(value, bool))
        )
        if not good:
            raise ValueError(f"setting {name!r} is {value!r}")
        values[name] = value
    return Settings(**values)


def _check_model(path: Path, head: Mapping[str, Any], stored: Mapping[str, np.ndarray]) -> None:
    """Refuse a network with more weights than the file holds numbers, before any of them is drawn."""
    held = sum(array.nbytes for array in stored.values())
    for group in (group for spec in head["specs"] for group in spec["groups"]):
        kind, _, named = str(group["architecture"]).partition(":")
        sizes = [int(size) for size in named.split(",")] if kind in NAMED_SIZES else []
        for inner, outer in zip((1, *sizes), (*sizes, 1), strict=True):
            if inner * outer * 4 > held:
                raise CheckpointError(
                    f"{path}: its model {group['architecture']} is larger than the {held:,} bytes it holds"
                )


def _check_learner(path: Path, head: Mapping[str, Any], encoder: Encoder, stored: Mapping[str, np.ndarray]) -> None:
    """Refuse a header that calls for more than the file holds, before any of it is made."""
    if [bool(flag) for flag in head["scaled"]] != encoder.scaled.tolist():
        raise CheckpointError(f"{path}: its header has other inputs than its columns make")
    held = sum(array.nbytes for array in stored.values())
    room = _whole(head["room"])
    classes = [_whole(target["classes"]) for target in head["targets"]]
    if room < encoder.width or room * 8 > held or sum(classes) * 8 > held or _whole(head["fan_in"]) > max(room, 1):
        raise CheckpointError(f"{path}: its header calls for more than the {held:,} bytes it holds")
    for target, entry in zip(encoder.schema.targets, head["targets"], strict=True):
        if bool(target.classes) != bool(entry["classes"]) or len(target.classes) > max(_whole(entry["classes"]), 2):
            raise CheckpointError(f"{path}: its header has other classes than its targets")


def _template(
    encoder: Encoder,
    learner: TableLearner,
    metrics: Metrics,
    stored: Mapping[str, np.ndarray],
    held: int,
    queued: int,
    early: int,
) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Name, shape and dtype of every array this session's checkpoint has."""
    columns = metrics.open.shape[1]
    rows = {name: len(stored[name]) if name in stored and stored[name].ndim == 2 else 0 for name in OPEN_ENDED}
    template: dict[str, tuple[tuple[int, ...], np.dtype]] = {
        "metrics.open": ((rows["metrics.open"], columns), F8),
        "metrics.recent": ((rows["metrics.recent"], columns), F8),
        "recent_inputs": ((rows["recent_inputs"], encoder.width), F8),
        "held": ((held, learner.past_columns + encoder.width), F8),
        "early": ((early, len(encoder.schema.targets)), F8),
        "queue": ((queued, sum(_queue_widths(learner))), F8),
        **learner.template(),
    }
    for position, part in enumerate(metrics.parts):
        for name, value in part.state.items():
            shape = value.shape
            if name == "counts":
                found = stored.get(f"metrics.{position}.counts")
                shape = found.shape if found is not None and found.ndim == 1 else shape
            template[f"metrics.{position}.{name}"] = (shape, value.dtype)
    return template


def _queue_widths(learner: TableLearner) -> list[int]:
    targets = len(learner.targets)
    return [len(learner.scaled), *(past.columns for past in learner.pasts), targets, targets, 1]


def _packed(session: "Session") -> np.ndarray:
    """The rows that wait for their label, each as one row of numbers."""
    widths = _queue_widths(session.learner)
    if not session.queue:
        return np.zeros((0, sum(widths)))
    rows = stacked([*session.queue])
    inputs = np.pad(rows.inputs, ((0, 0), (0, widths[0] - rows.inputs.shape[1])), constant_values=np.nan)
    return np.concatenate([inputs, *rows.past, rows.known, rows.targets, rows.weight[:, None]], axis=1)


def _unpacked(learner: TableLearner, table: np.ndarray, slots: list[int]) -> deque[TableBatch]:
    """The inverse of `_packed`."""
    edges = np.cumsum(_queue_widths(learner))[:-1]
    queue: deque[TableBatch] = deque()
    for row, slot in zip(table[:, None], slots, strict=True):
        inputs, *past, known, targets, weight = np.split(row, edges, axis=1)
        own = np.array([slot], np.int32) if learner.keyed else None
        queue.append(TableBatch(inputs, tuple(past), known.astype(np.int32), targets, weight[:, 0], own))
    return queue


def _wide(row: np.ndarray, width: int) -> np.ndarray:
    return np.concatenate([row, np.full(width - len(row), np.nan)])


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _tails(columns: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The last cells of each column: numbers and dates, and few of them."""
    if any(
        len(cells) > TAIL or not all(isinstance(cell, str | int | float) for cell in cells)
        for cells in columns.values()
    ):
        raise ValueError("its clock holds other cells than numbers and dates")
    return {_text(name): list(cells) for name, cells in columns.items()}


def _words(value: Any) -> list[str]:
    return [_text(word) for word in value]


def _texts(value: Any, check: Callable[[Any], Any]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not an object")
    return {_text(name): check(entry) for name, entry in value.items()}
