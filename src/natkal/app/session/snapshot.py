"""What a checkpoint holds of a session, and a session from it: everything that decides the next row."""

import dataclasses
from collections import OrderedDict, deque
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import natkal
from natkal.app.session import checkpoint
from natkal.tabular.errors import CheckpointError
from natkal.tabular.features import Encoder
from natkal.tabular.laws import law_of
from natkal.tabular.learners import is_users, state_bytes
from natkal.tabular.schema import Schema
from natkal.tabular.settings import Counts, Settings
from natkal.tabular.table import Position

if TYPE_CHECKING:
    from natkal.app.session.session import Session

FORMAT = 1
OPEN_ENDED = ("metrics.open", "metrics.recent", "recent_inputs")
"""Arrays whose number of rows only they themselves know."""


def header(session: "Session") -> dict[str, Any]:
    """All that is not numbers."""
    return {
        "format": FORMAT,
        "natkal": natkal.__version__,
        "jax": version("jax"),
        "dtype": "float64",
        "files": session.files,
        "settings": dataclasses.asdict(session.settings),
        "schema": session.schema.to_json(),
        "vocabularies": session.encoder.vocabularies,
        "counts": dataclasses.asdict(session.counts),
        "reasons": session.reasons,
        "position": list(session.position),
        "outputs": {name: output.length for name, output in session.outputs.items()},
        "keys": list(session.fleet.keys),
        "sequences": session.sequences,
        "held": list(session.held),
        "queued": len(session.queue),
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
    width = session.encoder.width
    found = {
        "metrics.open": session.metrics.open,
        "metrics.recent": session.metrics.recent,
        "recent_inputs": session.recent_inputs,
        "held": np.stack(list(session.held.values())) if session.held else np.zeros((0, width)),
        "queue": np.stack(session.queue) if session.queue else np.zeros((0, width + len(session.laws) + 1)),
        **session.fleet.arrays(),
    }
    for position, part in enumerate(session.metrics.parts):
        found |= {f"metrics.{position}.{name}": value for name, value in part.state.items()}
    return found


def load(
    kind: "type[Session]",
    path: Path,
    head: Mapping[str, Any],
    stored: Mapping[str, np.ndarray],
    folder: Path,
    model: str | None,
) -> "Session":
    """A session from a checkpoint that was read whole; its arrays must be those its settings call for.

    A file never chooses what code to run: a checkpoint of the user's own model loads only if `model` names it too.
    """
    if head.get("format") != FORMAT:
        raise CheckpointError(f"{path}: format {head.get('format')!r}, this natkal reads {FORMAT}")
    try:
        asked = Settings(**{name: tuple(v) if isinstance(v, list) else v for name, v in head["settings"].items()})  # pyright: ignore[reportArgumentType]
        if is_users(asked.model) and asked.model != model:
            raise CheckpointError(f"{path}: was learned by {asked.model}; give --model {asked.model} to run that code")
        schema = Schema.from_json(head["schema"])
        _check_size(path, asked, schema, stored)
        session = kind(folder, asked, schema, head["vocabularies"])
        session.files = [str(name) for name in head["files"]]
        session.counts = Counts(**head["counts"])
        session.reasons = dict(head["reasons"])
        session.position = Position(*head["position"])
        session.metrics.row = int(head["metrics"]["row"])
        for part, totals in zip(session.metrics.parts, head["metrics"]["targets"], strict=True):
            part.totals = {name: float(value) for name, value in totals["totals"].items()}
            part.scored = int(totals["scored"])
        session.fleet.keys = {key: slot for slot, key in enumerate(head["keys"])}
        session.sequences = {str(key): str(value) for key, value in head["sequences"].items()}
        held, queued = head["held"], int(head["queued"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}: its header lacks or contradicts what a run needs ({error})") from error
    if session.fleet.keys and schema.key is None:
        raise CheckpointError(f"{path}: its header has keys and no key column")
    checkpoint.match(path, stored, _template(session, stored, len(held), queued))
    _fill(session, stored, held)
    return session


def _check_size(path: Path, settings: Settings, schema: Schema, stored: Mapping[str, np.ndarray]) -> None:
    """Refuse settings that call for more memory than the checkpoint holds, before any of it is asked for."""
    encoder = Encoder(schema)
    laws = tuple(law_of(target) for target in schema.targets)
    called_for = state_bytes(settings.choice, encoder.width, laws)
    held = sum(array.nbytes for array in stored.values())
    if called_for > held:
        raise CheckpointError(f"{path}: its settings call for {called_for:,} bytes of state, it holds {held:,}")


def _template(
    session: "Session", stored: Mapping[str, np.ndarray], held: int, queued: int
) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Name, shape and dtype of every array this session's checkpoint has."""
    width, columns, f8 = session.encoder.width, session.metrics.open.shape[1], np.dtype("<f8")
    rows = {name: len(stored[name]) if name in stored and stored[name].ndim == 2 else 0 for name in OPEN_ENDED}
    template: dict[str, tuple[tuple[int, ...], np.dtype]] = {
        "metrics.open": ((rows["metrics.open"], columns), f8),
        "metrics.recent": ((rows["metrics.recent"], columns), f8),
        "recent_inputs": ((rows["recent_inputs"], width), f8),
        "held": ((held, width), f8),
        "queue": ((queued, width + len(session.laws) + 1), f8),
        **session.fleet.template(),
    }
    for position, part in enumerate(session.metrics.parts):
        template |= {f"metrics.{position}.{name}": (value.shape, value.dtype) for name, value in part.state.items()}
    return template


def _fill(session: "Session", stored: Mapping[str, np.ndarray], held: list[str]) -> None:
    session.metrics.open, session.metrics.recent = stored["metrics.open"].copy(), stored["metrics.recent"].copy()
    for position, part in enumerate(session.metrics.parts):
        part.counts = stored[f"metrics.{position}.counts"].copy()
        part.sums = stored[f"metrics.{position}.sums"].copy()
        part.calibration = stored[f"metrics.{position}.calibration"].copy()
    session.recent_inputs = stored["recent_inputs"].copy()
    session.held = OrderedDict(zip(held, stored["held"].copy(), strict=True))
    session.queue = deque(stored["queue"].copy())
    session.fleet.restore(stored)
