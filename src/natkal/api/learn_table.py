"""`nk.learn`: the command `natkal learn` as a function, on data in memory or on files."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from natkal.api.answers import table_kind
from natkal.api.calls import TemporaryFolder, table_call, warn_of
from natkal.api.run_result import Run
from natkal.errors import StreamError
from natkal.reading.kafka.address import is_kafka
from natkal.reading.memory import open_data
from natkal.reading.open_source import check_data, open_source
from natkal.runs import checkpoint
from natkal.runs.pace import progress_line
from natkal.runs.places import check_place
from natkal.runs.predict_rows import load
from natkal.runs.runtime import keep_programs
from natkal.runs.session import Session
from natkal.settings.settings import Settings
from natkal.tables.engine.ray_table import check_ray, on_ray

Names = str | Sequence[str]


def learn(
    data: Any,
    target: Names,
    *,
    task: str | None = None,
    features: Names = (),
    classes: Sequence[Any] = (),
    missing: str = "impute",
    encoding: str = "utf-8",
    decimal: str = "auto",
    model: str = "auto",
    key: str | None = None,
    pool: bool = False,
    past: str | int | Sequence[int] = "auto",
    budget: str | float = "auto",
    memory: str | int | None = None,
    sequence: str | None = None,
    id: str | None = None,
    label_delay: int = 0,
    label_topic: str | None = None,
    until_end: bool = False,
    group: str | None = None,
    transactions: bool = False,
    kafka_config: str | os.PathLike[str] | None = None,
    horizon: int | None = None,
    learner: str = "auto",
    prior_scale: float | None = None,
    fading: float | None = None,
    seed: int = 0,
    sample: int = 1000,
    run: str | os.PathLike[str] | None = None,
    level: float = 0.9,
    predictions: str | os.PathLike[str] | None = None,
    rejects: str | os.PathLike[str] | None = None,
    metrics: str | os.PathLike[str] | None = None,
    metrics_every: int | None = None,
    checkpoint_every: int | str = "30s",
    max_rejects: int | None = None,
    overwrite: bool = False,
    ray: str | None = None,
    progress: bool | None = None,
) -> Run:
    """Learn a table row by row, each row predicted before it is learned from; the same as `natkal learn`.

    Args:
        data: A pandas or polars frame, an Arrow table, a path or several, a dict of columns, or an iterable of dicts
            (a list, a generator, a PyTorch dataset or loader; pairs (inputs, target) become columns x1, x2, ...), or a
            topic, `kafka://BROKER/TOPIC`.
        target: The column to predict, or several.
        task: regression, binary, multiclass, count or positive; found out unless given.
        features: Columns to use: names, `name:kind`, or `-name` to leave one out; all of them unless given.
        classes: All classes of the target; those of the first rows and whatever comes later, unless given.
        missing: A missing feature: `impute` (its mean so far) or `reject` (the row is not used).
        encoding: Encoding of text files.
        decimal: Decimal sign of numbers written as text: `auto`, `.` or `,`.
        model: `auto`, `linear`, `mlp:64,64`, `gru:8` (rnn, lstm, rtu, lru alike), or package.module:function.
        key: Column of keys: one model for each.
        pool: With `key`: the models share a prior that is learned from all of them.
        past: Earlier targets as inputs: `auto`, `none`, or lags such as `[1, 2, 48]`.
        budget: `fast` runs few members, `auto` stops those that have lost, `best` runs all of them, a number is about
            how many microseconds a row may take.
        memory: The most that the learner's state may take: bytes, or `"1MB"`.
        sequence: Column of sequences: where it changes, a model's memory starts again.
        id: Column of row ids: a label may come in a later row with the same id.
        label_delay: A row's label arrives this many rows after it.
        label_topic: Of a topic: the topic of labels, by `id`.
        until_end: Of a topic: stop at the messages that are last now; otherwise only an interrupt ends the call.
        group: Of a topic: the consumer group, the name of the run's folder unless given.
        transactions: What goes to topics is visible exactly once, at checkpoints.
        kafka_config: A file of settings for the Kafka client, lines such as `security.protocol=SSL`.
        horizon: Forecast so many rows ahead after each row, and score it.
        learner: `auto` (a bank of filters with nothing to tune) or `single` (one filter).
        prior_scale: Of a single filter: prior variance of a weight, times 1/fan-in.
        fading: Of a single filter: share of the past forgotten at each row, in [0, 1).
        seed: Seed of the first weights.
        sample: Rows from which types are inferred.
        run: Folder for checkpoints, metrics and rejects; a temporary one that goes with the `Run`, unless given.
        level: Share of targets that the intervals hold, which are written to `predictions`.
        predictions: Write every prediction to this file (.csv or .jsonl) or topic (kafka://BROKER/TOPIC).
        rejects: Write rejected rows to this file or topic; in the run unless given.
        metrics: Write the running metrics to this file.
        metrics_every: Rows per line of metrics.
        checkpoint_every: Rows (10000) or seconds ("30s") between checkpoints, where `run` is given.
        max_rejects: Stop once more rows than this are rejected.
        overwrite: Replace the run in the folder.
        ray: With `key`: address of a Ray cluster on which the models learn; `local` starts one here.
        progress: Show rows, rate, loss and time left on standard error; shown in a terminal and in a notebook, unless
            given.

    Returns:
        A `Run`: `.predict(frame)`, `.forecast(h)`, `.metrics`, `.relevance`, `.report()`, `.save(path)`.

    Example:
        >>> import natkal as nk
        >>> rows = [{"a": i % 7, "b": i % 5, "y": 2.0 * (i % 7) - i % 5} for i in range(200)]
        >>> run = nk.learn(rows, target="y", model="linear", learner="single", past="none")
        >>> round(run.predict([{"a": 3, "b": 1}])[0]["predicted"])
        5
    """
    with table_call():
        check_ray(ray, key, label_delay)
        settings = Settings(
            targets=_names(target),
            task=task,
            features=_names(features),
            classes=tuple(str(name) for name in classes),
            missing=missing,
            encoding=encoding,
            decimal=decimal,
            key=key,
            pool=pool,
            sequence=sequence,
            id=id,
            label_delay=label_delay,
            learner="single" if learner == "auto" and (prior_scale, fading) != (None, None) else learner,
            model=model,
            prior_scale=prior_scale,
            fading=fading,
            past=past if isinstance(past, str) else ",".join(map(str, [past] if isinstance(past, int) else past)),
            budget=str(budget),
            memory=memory,
            level=level,
            seed=seed,
            sample=sample,
            metrics_every=metrics_every,
            max_rejects=max_rejects,
            predictions=check_place(_path(predictions), "--predictions", "csv", "jsonl"),
            rejects=check_place(_path(rejects), "--rejects", "jsonl"),
            metrics=check_place(_path(metrics), "--metrics", "csv"),
            horizon=horizon,
            label_topic=label_topic,
            group=group,
            kafka_config=None if kafka_config is None else str(Path(kafka_config).absolute()),
            transactions=transactions,
        )
        rows, seconds = _interval(checkpoint_every) if run is not None else (None, None)
        temporary = TemporaryFolder() if run is None else None
        folder = Path(run) if temporary is None else temporary.path  # pyright: ignore[reportArgumentType]
        if checkpoint.exists(folder) and not overwrite:
            raise StreamError(f"{folder}: holds a run: overwrite=True replaces it, nk.load_run loads it")
        if isinstance(data, str) and is_kafka(data):
            source = open_source([data], settings, folder, until_end=until_end)
        else:
            check_data([], settings, until_end=until_end)
            source = open_data(data, settings.targets, encoding)
        keep_programs()
        session, first = Session.begin(folder, settings, source)
        started = time.perf_counter()
        with progress_line(source, shown=progress) as report, on_ray(session.learner, ray):
            session.run(source, first, checkpoint_rows=rows, checkpoint_seconds=seconds, report=report)
        warn_of(session)
    return Run(session, temporary=temporary, seconds=time.perf_counter() - started, kind=table_kind(data))


def load_run(path: str | os.PathLike[str], *, model: str | None = None) -> Run:
    """The run in a folder that `Run.save` or `natkal learn --run` left, or in a checkpoint file.

    A file never names code to run: a run that was learned by a function of your own loads only if `model` names it.
    """
    with table_call():
        where = Path(path)
        if not where.exists():
            raise StreamError(f"{where}: no such file or directory")
        session = load(where, model)
        session.metrics.close()  # the last window counts as far as it goes
        return Run(session)


def _path(given: str | os.PathLike[str] | None) -> str | None:
    return None if given is None else os.fspath(given)


def _names(given: Names) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(str(name) for name in given)


def _interval(every: int | str) -> tuple[int | None, float | None]:
    """Rows or seconds between checkpoints."""
    try:
        rows, seconds = (None, float(every[:-1])) if str(every).endswith("s") else (int(every), None)  # pyright: ignore[reportIndexIssue]
    except ValueError:
        rows, seconds = 0, None
    if (rows or seconds or 0) <= 0:
        raise StreamError(f"checkpoint_every: write rows (10000) or seconds ('30s'), got {every!r}")
    return rows, seconds
