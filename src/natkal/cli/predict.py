"""`natkal predict`: predictions from a checkpoint, learning nothing."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from natkal.cli.terminal import err, explained, print_json


class MissingColumns(StrEnum):
    """What to do with a file that lacks a column the model was trained on."""

    error = "error"
    impute = "impute"


def predict(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint file, or the folder of a run.")],
    data: Annotated[list[str], typer.Argument(help="Files, a directory or - (standard input); no labels needed.")],
    to: Annotated[
        Path | None, typer.Option("--out", help="Write here, .csv, .jsonl or .parquet (default: print CSV).")
    ] = None,
    rejects: Annotated[Path | None, typer.Option(help="Write rows that cannot be used here, with reasons.")] = None,
    encoding: Annotated[str, typer.Option(help="Encoding of text files: utf-8, cp1252, utf-16, ...")] = "utf-8",
    missing_columns: Annotated[
        MissingColumns, typer.Option(help="A column the model was trained on is not there: an error, or its mean.")
    ] = MissingColumns.error,
    model: Annotated[str | None, typer.Option(help="package.module:function, if the run used one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object (needs --out).")] = False,
) -> None:
    """Predict rows with what a run has learned. Rows that cannot be used are counted and left out."""
    if as_json and to is None:
        raise typer.BadParameter("the predictions need a file: give --out", param_hint="--json")

    from natkal.errors import StreamError
    from natkal.runs.runtime import command

    with command(), explained(StreamError):
        from natkal.reading.source import Source, find_files
        from natkal.runs.places import format_of
        from natkal.runs.predict_rows import FORMATS, load, predict_rows

        for path, option, formats in ((to, "--out", FORMATS), (rejects, "--rejects", ("jsonl",))):
            if path is not None:
                format_of(path, option, *formats)
        session = load(checkpoint, model)
        impute = missing_columns == MissingColumns.impute
        counts, lines = predict_rows(session, Source(find_files(data), encoding=encoding), to, rejects, impute=impute)
        for text in lines:
            typer.echo(text, nl=False)
        if as_json:
            rows = {
                "read": counts.read,
                "predicted": counts.learned,
                "rejected": counts.rejected,
                "skipped": counts.skipped,
            }
            print_json({"command": "predict", "checkpoint": str(checkpoint), "out": str(to), "rows": rows})
        else:
            err.print(counts.accounting("predicted"))
