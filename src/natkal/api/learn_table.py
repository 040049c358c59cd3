"""`nk.learn`: the command `natkal learn` as a function, on data in memory or on files."""

import inspect
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from natkal.api.answers import table_kind
from natkal.api.calls import TemporaryFolder, in_python, table_call, warn_of
from natkal.api.run_result import Run
from natkal.errors import StreamError, did_you_mean
from natkal.reading.kafka.address import is_kafka
from natkal.reading.memory import open_data
from natkal.reading.open_source import check_data, open_source
from natkal.runs import checkpoint
from natkal.runs.pace import progress_line
from natkal.runs.places import with_places
from natkal.runs.predict_rows import load
from natkal.runs.runtime import keep_programs
from natkal.runs.session import Session
from natkal.settings.fields import options_of, taken
from natkal.settings.settings import HowToRun, Settings, interval, make_settings
from natkal.tables.engine.ray_table import check_ray, on_ray


def learn(data: Any, target: str | Sequence[str], *, progress: bool | None = None, **options: Any) -> Run:
    """Learn a table row by row, each row predicted before it is learned from; the same as `natkal learn`.

    Args:
        data: A pandas or polars frame, an Arrow table, a path or several, a dict of columns, or an iterable of dicts
            (a list, a generator, a PyTorch dataset or loader; pairs (inputs, target) become columns x1, x2, ...), or a
            topic, `kafka://BROKER/TOPIC`.
        target: The column to predict, or several.
        progress: Show rows, rate, loss and time left on standard error; shown in a terminal and in a notebook, unless
            given.
        options: Those of `natkal learn`, by the same names.

    Returns:
        A `Run`: `.predict(frame)`, `.forecast(h)`, `.metrics`, `.relevance`, `.report()`, `.save(path)`.

    Example:
        >>> import natkal as nk
        >>> rows = [{"a": i % 7, "b": i % 5, "y": 2.0 * (i % 7) - i % 5} for i in range(200)]
        >>> run = nk.learn(rows, target="y", model="linear", learner="single", past="none")
        >>> round(run.predict([{"a": 3, "b": 1}])[0]["predicted"])
        5
    """
    unknown = next((name for name in options if name not in OPTIONS), None)
    if unknown is not None:
        raise TypeError(f"learn: there is no option {unknown!r}; {did_you_mean(unknown, OPTIONS)}".rstrip("; "))
    with table_call():
        settings = with_places(make_settings(target=target, **options))
        how = taken(HowToRun, options)
        check_ray(how.ray, settings.key, settings.label_delay)
        kept = options.get("run") is not None
        rows, seconds = interval(how.checkpoint_every) if kept else (None, None)
        temporary = None if kept else TemporaryFolder()
        folder = Path(how.run) if temporary is None else temporary.path
        if checkpoint.exists(folder) and not how.overwrite:
            raise StreamError(f"{folder}: holds a run: overwrite=True replaces it, nk.load_run loads it")
        if isinstance(data, str) and is_kafka(data):
            source = open_source([data], settings, folder, until_end=how.until_end)
        else:
            check_data([], settings, until_end=how.until_end)
            source = open_data(data, settings.targets, settings.encoding)
        keep_programs()
        session, first = Session.begin(folder, settings, source)
        started = time.perf_counter()
        with progress_line(source, shown=progress) as report, on_ray(session.learner, how.ray):
            session.run(source, first, checkpoint_rows=rows, checkpoint_seconds=seconds, report=report)
        warn_of(session)
    return Run(session, temporary=temporary, seconds=time.perf_counter() - started, kind=table_kind(data))


OPTIONS = {one.name: one for one in options_of(Settings, HowToRun) if one.name != "target"}
"""The options of `learn`."""
WORDS = {
    "features": "Columns to use: names, `name:kind`, or `-name` to leave one out; all of them unless given.",
    "past": "Earlier targets as inputs: `auto`, `none`, or lags such as `[1, 2, 48]`.",
    "memory": "The most that the learner's state may take: bytes, or `1MB`.",
    "run": "Folder for checkpoints, metrics and rejects; a temporary one that goes with the `Run`, unless given.",
    "checkpoint_every": "Rows (10000) or seconds (30s) between checkpoints, where `run` is given.",
}
"""What help says of an option where Python takes more than the command line."""


def _with_options(function: Callable[..., Run]) -> None:
    """Give the function the signature and the help of its options."""
    own = list(inspect.signature(function).parameters.values())
    made = []
    for name, one in OPTIONS.items():
        default = None if name == "run" else one.default
        made.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=one.type))
    function.__signature__ = inspect.Signature([*own[:2], *made, own[2]], return_annotation=Run)  # pyright: ignore[reportFunctionMemberAccess]
    lines = [f"        {name}: {in_python(WORDS.get(name, one.option.help))}" for name, one in OPTIONS.items()]
    words = "        options: Those of `natkal learn`, by the same names."
    function.__doc__ = (function.__doc__ or "").replace(words, "\n".join(lines))


_with_options(learn)


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
