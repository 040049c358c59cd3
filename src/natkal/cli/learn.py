"""`natkal learn`: a stream from files or a pipe, learned row by row."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natkal.cli.learn_result import describe, print_result, result_of
from natkal.cli.options import Decimal, LearnerKind, Missing, Task, in_panel, interval, names
from natkal.cli.terminal import err, explained, print_json, stream_progress, warn
from natkal.runs.stopping import stop_on_signals

if TYPE_CHECKING:
    from natkal.runs.session import Session


_data, _model, _run, _output, _kafka = map(
    in_panel, ("Data and target", "Model and learning", "Run", "Output", "Kafka")
)


def learn(
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATA",
            help="CSV, JSONL, Parquet or Arrow files (.gz, .zst), a directory, - (standard input), "
            "kafka://BROKER/TOPIC, @flights.",
        ),
    ] = None,
    # the data, and what is to be predicted
    target: Annotated[list[str] | None, _data("COLUMN", "Column to predict; may be given several times.")] = None,
    task: Annotated[Task | None, _data("TASK", f"What the target is: {', '.join(Task)} (default: inferred).")] = None,
    features: Annotated[
        str, _data("COLUMNS", "Columns to use: a,b:category,... or -c to leave some out (default: all).", shown=False)
    ] = "",
    classes: Annotated[
        str, _data("NAMES", "All classes of the target (default: those of the first rows).", shown=False)
    ] = "",
    missing: Annotated[
        Missing, _data("impute|reject", "A missing feature: its mean so far, or a reject.")
    ] = Missing.impute,
    encoding: Annotated[str, _data("NAME", "Encoding of text files: utf-8, cp1252, utf-16, ...")] = "utf-8",
    decimal: Annotated[Decimal, _data("auto|.|,", "Decimal sign, where a column leaves it open.")] = Decimal.auto,
    sample: Annotated[int, _data("ROWS", "Rows from which types are inferred (- waits for them).", min=1)] = 1000,
    key: Annotated[str | None, _data("COLUMN", "Column of keys: one model for each.")] = None,
    pool: Annotated[bool, _data(None, "With --key: the models share a prior, learned from all.", "--pool")] = False,
    sequence: Annotated[
        str | None, _data("COLUMN", "Column of sequences: where it changes, a model's memory starts again.")
    ] = None,
    row_id: Annotated[str | None, _data("COLUMN", "Column of row ids: labels may come later.", "--id")] = None,
    label_delay: Annotated[int, _data("ROWS", "A row's label arrives this many rows after it.", min=0)] = 0,
    label_topic: Annotated[str | None, _kafka("TOPIC", "Topic of labels, by --id.")] = None,
    until_end: Annotated[bool, _kafka(None, "Stop at the messages that are last now.", "--until-end")] = False,
    partition_models: Annotated[
        bool,
        _kafka(None, "One model for each partition; more processes share them out.", "--partition-models"),
    ] = False,
    group: Annotated[str | None, _kafka("NAME", "Consumer group (default: the run's name).")] = None,
    transactions: Annotated[
        bool, _kafka(None, "What goes to topics is visible exactly once, at checkpoints.", "--transactions")
    ] = False,
    kafka_config: Annotated[
        Path | None, _kafka("FILE", "Settings of the client: lines such as security.protocol=SSL.")
    ] = None,
    # the model, and how it learns
    model: Annotated[
        str,
        _model("MODEL", "auto, linear, mlp:64,64, gru:8 (rnn, lstm, rtu, lru alike) or package.module:function."),
    ] = "auto",
    past: Annotated[str, _model("LAGS", "Earlier targets as inputs: auto, none, or lags such as 1,2,48.")] = "auto",
    budget: Annotated[
        str,
        _model(
            "fast|auto|best|US",
            "fast: few members. auto: stop those that have lost. best: all of them. A number: about so many "
            "microseconds a row.",
        ),
    ] = "auto",
    memory: Annotated[str | None, _model("SIZE", "The most that the learner's state may take: 128kB, 1MB.")] = None,
    learner: Annotated[
        LearnerKind | None,
        _model("auto|single", "auto: a bank of filters with nothing to tune. single: one filter, far quicker."),
    ] = None,
    prior_scale: Annotated[
        float | None, _model("NUMBER", "single: prior variance of a weight, times 1/fan-in (default 1).")
    ] = None,
    fading: Annotated[
        float | None, _model("SHARE", "single: share of the past forgotten at each row, in [0, 1) (default 3e-4).")
    ] = None,
    seed: Annotated[int, _model("NUMBER", "Seed of the first weights.", min=0)] = 0,
    horizon: Annotated[
        int | None, _model("ROWS", "Forecast so many rows ahead after each row, and score it.", min=1, max=10_000)
    ] = None,
    # the run
    run: Annotated[Path, _run("FOLDER", "Folder for checkpoints, metrics, rejects, report.")] = Path("natkal-run"),
    resume: Annotated[bool, _run(None, "Go on from the run's last checkpoint.", "--resume")] = False,
    overwrite: Annotated[bool, _run(None, "Replace the run in the folder.", "--overwrite")] = False,
    checkpoint_every: Annotated[
        str, _run("ROWS|SECONDS", "Rows (10000) or seconds (30s) between checkpoints.")
    ] = "30s",
    max_rejects: Annotated[int | None, _run("ROWS", "Stop once more rows than this are rejected.", min=0)] = None,
    ray: Annotated[
        str | None, _run("ADDRESS", "With --key: learn on a Ray cluster (local starts one; needs natkal[ray]).")
    ] = None,
    # the output
    predictions: Annotated[
        str | None, _output("FILE", "Write every prediction here (.csv, .jsonl or kafka://BROKER/TOPIC).")
    ] = None,
    rejects: Annotated[
        str | None, _output("FILE", "Write rejected rows here (.jsonl or kafka://BROKER/TOPIC; default: in the run).")
    ] = None,
    level: Annotated[
        float, _output("SHARE", "Share of targets that the intervals of predictions hold.", min=0.01, max=0.999)
    ] = 0.9,
    metrics: Annotated[Path | None, _output("FILE", "Write the running metrics here (default: in the run).")] = None,
    metrics_every: Annotated[int | None, _output("ROWS", "Rows per line of metrics.", min=1)] = None,
    report: Annotated[bool, _output(None, "Write report.html into the run.", "--report/--no-report")] = True,
    live: Annotated[bool, _output(None, "Show a live page of the run (needs natkal[serve]).", "--live")] = False,
    as_json: Annotated[bool, _output(None, "Print one JSON object and nothing else.", "--json")] = False,
) -> None:
    """Learn from a stream: every row is predicted, then learned from. Leaves checkpoints, metrics and a report."""
    if not resume and not (data and target):
        raise typer.BadParameter("give DATA and --target, or --resume", param_hint="DATA")
    tuned = prior_scale is not None or fading is not None
    if tuned and learner == LearnerKind.auto:
        raise typer.BadParameter("--prior-scale and --fading are for one filter: use single", param_hint="--learner")
    if prior_scale is not None and not prior_scale > 0:
        raise typer.BadParameter(f"must be positive, got {prior_scale:g}", param_hint="--prior-scale")
    if fading is not None and not 0 <= fading < 1:
        raise typer.BadParameter(f"must be in [0, 1), got {fading:g}", param_hint="--fading")
    rows, seconds = interval(checkpoint_every)

    from natkal.errors import StreamError
    from natkal.runs.folder import open_learning
    from natkal.runs.places import check_place
    from natkal.runs.runtime import command
    from natkal.settings.settings import Settings

    with explained(StreamError):
        if ray is not None:
            from natkal.tables.engine.ray_table import check_ray

            check_ray(ray, key if not resume else "", label_delay)
        settings = Settings(
            targets=tuple(target or ()),
            task=None if task is None else task.value,
            features=names(features),
            classes=names(classes),
            missing=missing.value,
            encoding=encoding,
            decimal=decimal.value,
            key=key,
            pool=pool,
            sequence=sequence,
            id=row_id,
            label_delay=label_delay,
            learner=(learner or (LearnerKind.single if tuned else LearnerKind.auto)).value,
            model=model,
            prior_scale=prior_scale,
            fading=fading,
            past=past,
            budget=budget,
            memory=memory,
            level=level,
            seed=seed,
            sample=sample,
            metrics_every=metrics_every,
            max_rejects=max_rejects,
            predictions=check_place(predictions, "--predictions", "csv", "jsonl"),
            metrics=check_place(None if metrics is None else str(metrics), "--metrics", "csv"),
            rejects=check_place(rejects, "--rejects", "jsonl"),
            horizon=horizon,
            label_topic=label_topic,
            group=group,
            kafka_config=None if kafka_config is None else str(kafka_config.absolute()),
            transactions=transactions,
        )
        if partition_models:
            from natkal.cli.learn_partitions import learn_partitions

            if resume or overwrite or live:
                raise StreamError(
                    "--partition-models: goes on where the run's folder stands; leave out --resume, --overwrite, --live"
                )
            learn_partitions(
                run, settings, data or [], until_end=until_end, rows=rows, seconds=seconds, as_json=as_json
            )
            return
        begin = open_learning(run, settings, data, resume=resume, overwrite=overwrite, until_end=until_end, tell=warn)
        with command():
            session, source, first = begin()
            if not as_json and not resume:
                describe(session)
            started, rows_before = time.perf_counter(), session.counts.read
            hint = f"natkal learn --resume --run {run} goes on from the last checkpoint"
            with (
                stop_on_signals(lambda number: f"stopped in the middle of a block; {hint}") as stopped,
                stream_progress(source, rows_before, quiet=as_json) as progress,
                _on_ray(session, ray),
                _live_page(live) as tell,
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
            taken = time.perf_counter() - started
            result = result_of(session, source.files, taken, session.counts.read - rows_before, done)
            if report and done:
                from natkal.report import write_report

                result["report"] = str(write_report(session, seconds=taken if not rows_before else None))
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
