"""A checkpoint of a session: what each part keeps, and a session from it, each part checked before it is used."""

import dataclasses
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import natkal
from natkal.errors import CheckpointError, StreamError
from natkal.runs.make_learner import table_kind
from natkal.settings.options import check_options
from natkal.settings.settings import Settings
from natkal.storage.file import StorageError
from natkal.storage.parts import Stored, by_name, each, text, whole
from natkal.tables.encode.encoder import Encoder
from natkal.tables.learner.architectures import NAMED_SIZES
from natkal.tables.schema.infer import Schema
from natkal.tables.table import TableLearner

if TYPE_CHECKING:
    from natkal.runs.session import Session

FORMAT = 8
MAX_HORIZON = 10_000
"""The most rows ahead that a run scores."""


def snapshot(session: "Session") -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a checkpoint: everything that decides the next row."""
    parts = session.stored()
    return {
        "format": FORMAT,
        "natkal": natkal.__version__,
        "jax": version("jax"),
        "settings": dataclasses.asdict(session.settings),
        "schema": session.schema.to_json(),
        "vocabularies": session.encoder.vocabularies,
        **parts.fields,
    }, dict(parts.arrays)


def restored(
    kind: "type[Session]",
    path: Path,
    head: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    folder: Path,
    model: str | None,
) -> "Session":
    """The session of a checkpoint that was read whole; its arrays must be those its settings call for.

    A file never chooses what code to run: a checkpoint of the user's own model loads only if `model` names it too.
    """
    if "learner" in head and "format" not in head:
        raise CheckpointError(f"{path}: is the state of a learner, not a run; nk.load reads it")
    if "decisions" in head:
        raise CheckpointError(f"{path}: is a run of natkal decide, which natkal decide, report and serve take")
    if head.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: format {head.get('format')!r}, written by natkal {head.get('natkal')}; this natkal reads {FORMAT}"
        )
    try:
        settings = _settings(head["settings"])
        check_options(settings.options)
        if settings.options.users_own and settings.model != model:
            raise CheckpointError(
                f"{path}: was learned by {settings.model}; give --model {settings.model} to run that code"
            )
        if settings.horizon is not None and not 1 <= settings.horizon <= MAX_HORIZON:
            raise ValueError(f"its horizon is {settings.horizon}")
        encoder = Encoder(Schema.from_json(head["schema"]), by_name(each(text))(head["vocabularies"]))
        session = kind(folder, settings, encoder, _learner(settings, encoder, head["learner"], arrays))
        session.restore(Stored(head, arrays))
    except StorageError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except StreamError as error:
        raise CheckpointError(f"{path}: {error}" if not str(error).startswith(str(path)) else str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise CheckpointError(f"{path}: its header lacks or contradicts what a run needs ({error})") from error
    return session


def _settings(given: Mapping[str, Any]) -> Settings:
    """The settings, each checked against its declared type."""
    types = {field.name: str(field.type) for field in dataclasses.fields(Settings)}
    values = {}
    for name, value in given.items():
        kind = types[name]
        if isinstance(value, list):
            value = tuple(text(entry) for entry in value)
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


def _learner(
    settings: Settings, encoder: Encoder, head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> TableLearner:
    """A learner like the one that wrote the header; one larger than the file is refused before any of it is made."""
    held = sum(array.nbytes for array in arrays.values())
    for group in (group for spec in head["specs"] for group in spec["groups"]):
        kind, _, named = str(group["architecture"]).partition(":")
        sizes = [int(size) for size in named.split(",")] if kind in NAMED_SIZES else []
        if any(inner * outer * 4 > held for inner, outer in zip((1, *sizes), (*sizes, 1), strict=True)):
            raise ValueError(f"its model {group['architecture']} is larger than the {held:,} bytes it holds")
    if [bool(flag) for flag in head["scaled"]] != encoder.scaled.tolist():
        raise ValueError("other inputs than its columns make")
    room = whole(head["room"])
    classes = [whole(target["classes"]) for target in head["targets"]]
    if room < encoder.width or room * 8 > held or sum(classes) * 8 > held or whole(head["fan_in"]) > max(room, 1):
        raise ValueError(f"more than the {held:,} bytes it holds")
    for target, count in zip(encoder.schema.targets, classes, strict=True):
        if bool(target.classes) != bool(count) or len(target.classes) > max(count, 2):
            raise ValueError("other classes than its targets")
    keyed = encoder.schema.key is not None
    made = table_kind(settings).from_header(
        settings.options, head, keyed=keyed, limits=settings.predictions is not None
    )
    if made.keys and not keyed:
        raise ValueError("keys and no key column")
    return made
