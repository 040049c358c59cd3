"""`natkal forecast`: the rows after the last one that a run has learned."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natkal.cli.terminal import err, explained, print_json, progress

if TYPE_CHECKING:
    from natkal.runs.forecasting import Forecast

DEFAULT_HORIZON = 12


def forecast(
    run: Annotated[Path, typer.Argument(help="Folder of a run that `natkal learn` left, or a checkpoint file.")],
    horizon: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="How many rows ahead (default: that of the run, or 12).")
    ] = None,
    future: Annotated[
        list[str] | None, typer.Option(help="File with columns of the rows to come that are known: dates, prices, ...")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Forecast this key alone (default: all of them).")] = None,
    to: Annotated[Path | None, typer.Option("--out", help="Write here, .csv or .jsonl (default: print CSV).")] = None,
    encoding: Annotated[str, typer.Option(help="Encoding of text files: utf-8, cp1252, utf-16, ...")] = "utf-8",
    model: Annotated[str | None, typer.Option(help="package.module:function, if the run used one.")] = None,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write the fan chart into report.html.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Forecast the next rows with what a run has learned: medians, 90% intervals and quantiles. Learns nothing."""
    from natkal.errors import StreamError
    from natkal.runs.runtime import command

    with command(), explained(StreamError):
        from natkal.reading.source import Source, find_files
        from natkal.runs.forecast_answers import entries
        from natkal.runs.forecasting import forecasts, future_rows, warnings_of
        from natkal.runs.predict_rows import load

        session = load(run, model)
        steps = horizon or session.settings.horizon or DEFAULT_HORIZON
        given = None if not future else future_rows(session, Source(find_files(future), encoding=encoding))
        made: list[Forecast] = []
        keys = len(session.learner.keys) if session.schema.key is not None and key is None else 1
        with progress(keys * len(session.schema.targets), "forecasts", quiet=as_json) as tell:
            tell(0, f"compiling {steps:,} rows ahead, the first takes longest")
            for one in forecasts(session, steps, future=given, key=key):
                made.append(one)
                tell(len(made), "")
        told = entries(session, made)
        warnings = warnings_of(session, made, given)
        if to is not None:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(_lines(told) if "json" in to.suffix else _table(told), encoding="utf-8")
        result: dict[str, Any] = {"command": "forecast", "run": str(run), "horizon": steps, "forecast": told}
        result |= {"warnings": warnings, **({} if to is None else {"out": str(to)})}
        if report and run.is_dir():
            from natkal.report import write_report

            session.metrics.close()
            result["report"] = str(write_report(session, fans=made))
        if as_json:
            print_json(result)
            return
        if to is None:
            typer.echo(_table(told), nl=False)
        for warning in warnings:
            err.print(f"warning: {warning}", soft_wrap=True, style="yellow")


def _lines(entries: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)


def _table(entries: list[dict[str, Any]]) -> str:
    """The entries as CSV; quantiles are columns q05 .. q95."""
    from natkal.runs.answers import quoted
    from natkal.runs.forecast_answers import flat

    rows = [flat(entry) for entry in entries]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = [",".join(quoted(name) for name in names)]
    text += [",".join(quoted(str(row[name])) if name in row else "" for name in names) for row in rows]
    return "\n".join(text) + "\n"
