"""`natkal learn`: a stream from files or a pipe, learned row by row."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natkal.cli.build import usage_errors, with_options
from natkal.cli.learn_result import describe, print_result, result_of
from natkal.cli.terminal import err, explained, print_json, stream_progress, warn
from natkal.runs.stopping import stop_on_signals
from natkal.settings.fields import taken
from natkal.settings.settings import HowToRun, OfTheCommand, Settings, check_settings, interval

if TYPE_CHECKING:
    from natkal.runs.session import Session


@with_options(Settings, HowToRun, OfTheCommand)
def learn(
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATA",
            help="CSV, JSONL, Parquet or Arrow files (.gz, .zst), a directory, - (standard input), "
            "kafka://BROKER/TOPIC, @flights.",
        ),
    ] = None,
    **given: Any,
) -> None:
    """Learn from a stream: every row is predicted, then learned from. Leaves checkpoints, metrics and a report."""
    with usage_errors():
        settings, how, own = taken(Settings, given), taken(HowToRun, given), taken(OfTheCommand, given)
        check_settings(settings)
        rows, seconds = interval(how.checkpoint_every)
    run, resume, as_json = Path(how.run), own.resume, own.as_json
    if not resume and not (data and settings.targets):
        raise typer.BadParameter("give DATA and --target, or --resume", param_hint="DATA")

    from natkal.errors import StreamError
    from natkal.runs.folder import open_learning
    from natkal.runs.places import with_places
    from natkal.runs.runtime import command

    with explained(StreamError):
        if how.ray is not None:
            from natkal.tables.engine.ray_table import check_ray

            check_ray(how.ray, settings.key if not resume else "", settings.label_delay)
        settings = with_places(settings)
        if own.partition_models:
            from natkal.cli.learn_partitions import learn_partitions

            if resume or how.overwrite or own.live:
                raise StreamError(
                    "--partition-models: goes on where the run's folder stands; leave out --resume, --overwrite, --live"
                )
            learn_partitions(
                run, settings, data or [], until_end=how.until_end, rows=rows, seconds=seconds, as_json=as_json
            )
            return
        begin = open_learning(
            run, settings, data, resume=resume, overwrite=how.overwrite, until_end=how.until_end, tell=warn
        )
        with command():
            session, source, first = begin()
            if not as_json and not resume:
                describe(session)
            started, rows_before = time.perf_counter(), session.counts.read
            hint = f"natkal learn --resume --run {run} goes on from the last checkpoint"
            with (
                stop_on_signals(lambda number: f"stopped in the middle of a block; {hint}") as stopped,
                stream_progress(source, rows_before, quiet=as_json) as progress,
                _on_ray(session, how.ray),
                _live_page(own.live) as tell,
            ):

                def told(session: "Session") -> None:
                    progress(session)
                    tell(session)

                done = session.run(
                    source,
                    first,
                    checkpoint_rows=rows,
                    checkpoint_seconds=seconds,
                    stop=lambda: stopped() is not None,
                    report=told,
                )
                tell(session, finished=True)
            elapsed = time.perf_counter() - started
            result = result_of(session, source.files, elapsed, session.counts.read - rows_before, done)
            if own.report and done:
                from natkal.report import write_report

                result["report"] = str(write_report(session, seconds=elapsed if not rows_before else None))
            if as_json:
                print_json(result)
            else:
                print_result(result)
            if not done:
                number = stopped() or signal.SIGTERM
                err.print(f"stopped after {session.counts.read:,} rows; natkal learn --resume --run {run} goes on")
                raise typer.Exit(128 + number)


@contextmanager
def _on_ray(session: "Session", address: str | None) -> Iterator[None]:
    """The models of the keys on a Ray cluster, where there is one."""
    if address is None:
        yield
        return
    from natkal.tables.engine.ray_table import check_ray, on_ray

    check_ray(address, session.schema.key, session.settings.label_delay)
    with on_ray(session.learner, address):
        yield


@contextmanager
def _live_page(wanted: bool) -> Iterator[Callable[..., None]]:
    """A page that shows the run while it learns, where it is wanted; what it is told of the run."""
    if not wanted:
        yield lambda session, finished=False: None
        return
    from natkal.cli.serve import check_installed

    check_installed("--live")
    from natkal.serve.live import live_page

    with live_page() as (page, address):
        err.print(f"live page: {address}", markup=False)
        if err.is_terminal:
            import webbrowser

            webbrowser.open(address)
        yield page.tell
