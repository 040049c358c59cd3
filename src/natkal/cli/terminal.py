"""Where commands write: results on standard output, progress and complaints on standard error."""

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

# Text of the user's (column names, paths) may look like Rich's markup: it is read only where a call asks for it.
out = Console(highlight=False, markup=False)
err = Console(stderr=True, highlight=False, markup=False)


@runtime_checkable
class Report(Protocol):
    """Tells the person watching how many units are done, and anything worth knowing by now."""

    def __call__(self, done: int, note: str) -> None:
        """Say that `done` units in all are finished."""
        ...


@contextmanager
def progress(total: int, unit: str, *, quiet: bool = False) -> Iterator[Report]:
    """A bar on a terminal, about ten plain lines elsewhere, nothing when `quiet`."""
    if quiet:
        yield lambda done, note: None
    elif err.is_terminal:
        columns = (
            SpinnerColumn(),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TextColumn("{task.description}"),
        )
        with Progress(*columns, console=err, transient=True) as bar:
            task = bar.add_task("", total=total)
            yield lambda done, note: bar.update(task, completed=done, description=note)
    else:
        printed = 0

        def line(done: int, note: str) -> None:
            nonlocal printed
            if done * 10 // total > printed:
                printed = done * 10 // total
                err.print(f"{done:,} of {total:,} {unit}  {note}".rstrip(), soft_wrap=True)

        yield line


@contextmanager
def stream_progress(source: Any, rows_before: int, *, quiet: bool) -> Iterator[Callable[[Any], None]]:
    """For a stream: rows, rows/s, running loss and time left; a bar on a terminal, a line now and then elsewhere."""
    if quiet:
        yield lambda session: None
        return
    from natkal.runs.pace import Pace

    pace, shown = Pace(source, rows_before), time.monotonic()
    if err.is_terminal:
        with Progress(
            SpinnerColumn(), BarColumn(), TextColumn("{task.description}"), console=err, transient=True
        ) as bar:
            task = bar.add_task("", total=1.0)

            def advance(session: Any) -> None:
                bar.update(task, completed=source.share() or 0.0, description=pace.line(session))

            yield advance
    else:

        def line(session: Any) -> None:
            nonlocal shown
            if time.monotonic() - shown >= 5:
                shown = time.monotonic()
                err.print(pace.line(session), soft_wrap=True)

        yield line


def warn(words: str) -> None:
    """Something worth knowing that stops nothing."""
    err.print(f"[yellow]{escape(words)}[/]", markup=True, soft_wrap=True)


def print_json(result: dict[str, Any]) -> None:
    """One JSON object on standard output; a number that is not finite is null."""
    typer.echo(json.dumps(_finite(result), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def explained(error_type: type[Exception]) -> Iterator[None]:
    """A failure the user can do something about: its message, and exit code 1."""
    try:
        yield
    except error_type as error:
        from natkal.tables.schema.rows import printable

        err.print(f"[red]error:[/] {escape(printable(str(error)))}", soft_wrap=True, markup=True)
        raise typer.Exit(1) from error
