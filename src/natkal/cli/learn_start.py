"""How a run of `natkal learn` begins, or goes on."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from natkal.cli.terminal import err

if TYPE_CHECKING:
    from natkal.reading.source import RowSource
    from natkal.runs.session import Session
    from natkal.settings.settings import Settings
    from natkal.tables.schema.rows import Rows


def prepare(
    run: Path, settings: "Settings", data: list[str] | None, resume: bool, overwrite: bool, until_end: bool
) -> "Callable[[], tuple[Session, RowSource, list[Rows]]]":
    """What makes the session, its source and the rows already read.

    All that can be wrong with the data is found out first, and reading begins, before JAX is imported.
    """
    from natkal.errors import StreamError
    from natkal.reading.first_rows import look
    from natkal.reading.kafka.address import is_kafka
    from natkal.reading.open_source import open_source
    from natkal.runs import checkpoint

    if resume and checkpoint.exists(run):
        return lambda: _resumed(run, settings, data, until_end)
    if not data or not settings.targets:
        raise StreamError(f"{run}: there is no checkpoint to resume from; give DATA and --target to start")
    if checkpoint.exists(run) and not overwrite:
        raise StreamError(f"{run}: holds a run: --resume goes on, --overwrite replaces it, --run names another folder")
    source = open_source(data, settings, run, until_end=until_end)
    if is_kafka(data[0]) and not until_end:
        err.print(f"the first {settings.sample:,} messages (--sample) say what the columns are: waiting for them")
    looked = look(settings, source)

    def begin() -> "tuple[Session, RowSource, list[Rows]]":
        from natkal.runs.session import Session

        run.mkdir(parents=True, exist_ok=True)
        checkpoint.remove(run)
        session, first = Session.begin(run, settings, source, looked)
        return session, source, first

    return begin


def _resumed(
    run: Path, settings: "Settings", data: list[str] | None, until_end: bool
) -> "tuple[Session, RowSource, list[Rows]]":
    """The session of the last checkpoint, which goes on where it stood."""
    from natkal.errors import StreamError
    from natkal.reading.go_on import position_in
    from natkal.reading.open_source import open_source
    from natkal.runs.session import Session
    from natkal.settings.settings import check_same

    session, warning = Session.resume(run, model=settings.model)
    if warning:
        err.print(f"[yellow]{escape(warning)}[/]", markup=True)
    try:
        if settings.targets:
            check_same(settings, session.settings, whole=True)
        else:
            check_same(dataclasses.replace(settings, targets=session.settings.targets), session.settings, whole=False)
        source = open_source(
            data or session.files,
            session.settings,
            run,
            until_end=until_end,
            position=lambda files: position_in(files, session.files, session.position, ended=session.ended),
            offsets=session.offsets,
        )
    except StreamError:
        session.close_outputs()
        raise
    session.files = source.names
    return session, source, []
