"""Predictions from a checkpoint for rows that come without labels, learning nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from natkal.errors import StreamError
from natkal.reading.source import RowSource
from natkal.runs import checkpoint
from natkal.runs.answers import PredictionFormat
from natkal.runs.outputs import Appender
from natkal.runs.parquet_rows import ParquetRows
from natkal.runs.places import format_of
from natkal.runs.session import Session
from natkal.settings.settings import Counts
from natkal.tables.encode.encoder import Encoded, Encoder
from natkal.tables.engine.batch import Predictions
from natkal.tables.learner.tasks import LEVEL
from natkal.tables.schema.infer import Target
from natkal.tables.schema.rows import Rows

FORMATS = ("csv", "jsonl", "parquet")
"""What predictions are written as, by the ending of their file."""


class Predicted(NamedTuple):
    """Some rows, what of them could be used, and the predictions for that; `told` is None where nothing could.

    `targets` are as these rows have them: a class that only they have is among them.
    """

    rows: Rows
    encoded: Encoded
    told: Predictions | None
    targets: tuple[Target, ...]


def load(where: Path, model: str | None) -> Session:
    """The session of a checkpoint file, or of a run's newest checkpoint, which gives limits with its predictions."""
    if where.is_dir():
        session = Session.resume(where, model=model)[0]
    else:
        header, arrays = checkpoint.read(where)
        session = Session.restored(where, header, arrays, where.parent, model)
    session.learner.with_limits()
    return session


def predictions(
    session: Session, source: RowSource, *, impute: bool = False, level: float = LEVEL
) -> Iterator[Predicted]:
    """The predictions for all rows, block by block. The session is as before once all of them are taken.

    A source that lacks a column the model was trained on is refused, unless its values are to be imputed.
    """
    encoder = Encoder(session.schema, session.encoder.vocabularies)
    learner = session.learner
    state, keys, sequences = learner.state, dict(learner.keys), session.sequences
    try:
        while (rows := source.read()) is not None:
            missing = encoder.missing_columns(rows.columns)
            if missing and not impute:
                names = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
                raise StreamError(
                    f"{rows.file}: has no column {names}, which the model was trained on; "
                    "--missing-columns impute predicts without, with intervals as narrow as if it were there"
                )
            encoded = encoder.encode(rows)
            encoder.accept(encoded.additions)
            told = None
            if len(encoded.inputs):
                resets, last = session.resets(encoded)
                session.sequences = session.sequences | last
                asked = learner.rows(encoded.inputs, keys=encoded.keys)
                told = learner.predict(asked, keys=encoded.keys, resets=resets, level=level)
            yield Predicted(rows, encoded, told, encoder.schema.targets)
    finally:
        learner.state, learner.keys, session.sequences = state, keys, sequences
        source.close()


def predict_rows(
    session: Session, source: RowSource, to: Path | None, rejects: Path | None, *, impute: bool
) -> tuple[Counts, list[str]]:
    """Predict every row into a file, or as lines of CSV where none is given. Predicted rows count as learned."""
    kind = "csv" if to is None else format_of(to, "--out", *FORMATS)
    level = session.settings.level
    form = PredictionFormat(session.schema.targets, json_lines=kind != "csv", level=level)
    output = None if to is None else ParquetRows(to, form) if kind == "parquet" else Appender(to, first=form.header)
    rejected = None if rejects is None else Appender(rejects)
    for file in (output, rejected):
        if file is not None:
            file.cut()
    lines = [form.header] if output is None else []
    counts = Counts()
    for rows, encoded, told, targets in predictions(session, source, impute=impute, level=level):
        counts.read += rows.read
        counts.skipped += rows.blank
        counts.rejected += len(encoded.rejects)
        counts.learned += len(encoded.inputs)
        if rejected is not None:
            rejected.write("".join(json.dumps(reject._asdict()) + "\n" for reject in encoded.rejects))
        if told is None:
            continue
        text = form.write(encoded.lines, targets, told.targets, encoded.targets)
        if output is None:
            lines.append(text)
        else:
            output.write(text)
    for file in (output, rejected):
        if file is not None:
            file.flush(sync=True)
            file.close()
    return counts, lines
