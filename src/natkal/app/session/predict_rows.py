"""Predictions from a checkpoint for rows that come without labels, learning nothing."""

import json
from pathlib import Path

from natkal.app.reading.source import Source
from natkal.app.session import checkpoint
from natkal.app.session.outputs import Appender
from natkal.app.session.predictions import PredictionFormat
from natkal.app.session.session import Session
from natkal.app.settings import Counts
from natkal.tabular.errors import StreamError


def load(where: Path, model: str | None) -> Session:
    """The session of a checkpoint file, or of a run's newest checkpoint, which gives limits with its predictions."""
    if where.is_dir():
        session = Session.resume(where, model=model, open_outputs=False)[0]
    else:
        header, arrays = checkpoint.read(where)
        session = Session.restored(where, header, arrays, where.parent, model)
    session.learner.with_limits()
    return session


def predict_rows(
    session: Session, source: Source, to: Path | None, rejects: Path | None, *, impute: bool
) -> tuple[Counts, list[str]]:
    """Predict every row into a file, or as lines of CSV where none is given. Predicted rows count as learned.

    A file that lacks a column the model was trained on is refused, unless its values are to be imputed.
    """
    form = PredictionFormat(session.schema.targets, json_lines=to is not None and "json" in to.suffix)
    output = None if to is None else Appender(to, first=form.header)
    rejected = None if rejects is None else Appender(rejects)
    lines = [form.header] if output is None else []
    counts = Counts()
    while (rows := source.read()) is not None:
        missing = session.encoder.missing_columns(rows.columns)
        if missing and not impute:
            names = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
            raise StreamError(
                f"{rows.file}: has no column {names}, which the model was trained on; "
                "--missing-columns impute predicts without"
            )
        encoded = session.encoder.encode(rows)
        counts.read += rows.read
        counts.skipped += rows.blank
        counts.rejected += len(encoded.rejects)
        counts.learned += len(encoded.inputs)
        if rejected is not None:
            rejected.write("".join(json.dumps(reject._asdict()) + "\n" for reject in encoded.rejects))
        if not len(encoded.inputs):
            continue
        asked = session.learner.rows(encoded.inputs, keys=encoded.keys)
        told = session.learner.predict(asked, keys=encoded.keys, resets=session.resets(encoded))
        text = form.write(encoded.lines, session.schema.targets, told.outcomes, encoded.targets)
        if output is None:
            lines.append(text)
        else:
            output.write(text)
    for file in (output, rejected):
        if file is not None:
            file.flush(sync=True)
            file.close()
    return counts, lines
