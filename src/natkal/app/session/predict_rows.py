"""Predictions from a checkpoint for rows that come without labels, learning nothing."""

import json
from pathlib import Path

from natkal.app.reading.source import Source
from natkal.app.session import checkpoint, snapshot
from natkal.app.session.outputs import Appender
from natkal.app.session.predictions import PredictionFormat
from natkal.app.session.session import Counts, Session


def load(where: Path, model: str | None) -> Session:
    """The session of a checkpoint file, or of a run's newest checkpoint."""
    if where.is_dir():
        return Session.resume(where, model=model, open_outputs=False)[0]
    header, arrays = checkpoint.read(where)
    return snapshot.load(Session, where, header, arrays, where.parent, model)


def forecast(session: Session, source: Source, to: Path | None, rejects: Path | None) -> tuple[Counts, list[str]]:
    """Predict every row into a file, or as lines of CSV where none is given. Predicted rows count as learned."""
    json_lines = to is not None and "json" in to.suffix
    sizes = tuple(law.summary_size for law in session.laws)
    form = PredictionFormat(session.schema.targets, sizes, json_lines=json_lines)
    output = None if to is None else Appender(to, first=form.header)
    rejected = None if rejects is None else Appender(rejects)
    lines = [form.header] if output is None else []
    counts = Counts()
    while (rows := source.read()) is not None:
        encoded = session.encoder.encode(rows)
        counts.read += rows.read
        counts.skipped += rows.blank
        counts.rejected += len(encoded.rejects)
        counts.learned += len(encoded.inputs)
        if rejected is not None:
            rejected.write("".join(json.dumps(reject._asdict()) + "\n" for reject in encoded.rejects))
        summary = session.fleet.predict(session.feed(encoded), encoded.keys)
        text = form.write(encoded.lines, summary, encoded.targets)
        if output is None:
            lines.append(text)
        else:
            output.write(text)
    for file in (output, rejected):
        if file is not None:
            file.flush(sync=True)
            file.close()
    return counts, lines
