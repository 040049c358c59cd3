"""How a run begins in a folder, or goes on: all is checked and built before anything in the folder is replaced."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from natkal.errors import StreamError
from natkal.reading.first_rows import look
from natkal.reading.go_on import position_in
from natkal.reading.kafka.address import is_kafka
from natkal.reading.open_source import open_source
from natkal.reading.source import RowSource, Source, absolute, find_files
from natkal.runs import checkpoint
from natkal.settings.settings import Settings, check_same
from natkal.tables.schema.rows import Rows

if TYPE_CHECKING:
    from natkal.runs.decisions import DecisionSession
    from natkal.runs.outputs import Output
    from natkal.runs.session import Session
    from natkal.settings.decide import DecisionSettings


@runtime_checkable
class FolderRun(Protocol):
    """A run that was built, in memory. `kept`: what its checkpoint holds of each output; None for a new run."""

    folder: Path
    kept: dict[str, Any] | None
    outputs: dict[str, Any]

    def opened(self) -> "Iterator[tuple[str, Output]]":
        """The outputs, one by one found to be possible; nothing is cut off yet."""
        ...


def goes_on(folder: Path, *, resume: bool, overwrite: bool, able: object, needs: str) -> bool:
    """Whether the run in the folder goes on; a new one needs what makes it `able`, and leave to replace another."""
    there = checkpoint.exists(folder)
    if resume and there:
        return True
    if not able:
        raise StreamError(f"{folder}: there is no checkpoint to resume from; give {needs} to start")
    if there and not overwrite:
        raise StreamError(
            f"{folder}: holds a run: --resume goes on, --overwrite replaces it, --run names another folder"
        )
    return False


def take_over(run: FolderRun) -> None:
    """The folder is this run's from here on: what was there before is replaced only once every output is open."""
    run.folder.mkdir(parents=True, exist_ok=True)
    outputs: dict[str, Output] = {}
    with contextlib.ExitStack() as failed:
        for name, output in run.opened():
            outputs[name] = output
            failed.callback(output.close)
        failed.pop_all()
    run.outputs = outputs
    if run.kept is None:
        checkpoint.remove(run.folder)
    else:
        checkpoint.sweep(run.folder)
    for output in outputs.values():
        output.cut()


def chain(first: Iterable[Rows], source: RowSource) -> Iterator[Rows]:
    """The rows already read, then the others."""
    yield from first
    while (rows := source.read()) is not None:
        yield rows


def open_learning(
    folder: Path,
    settings: Settings,
    data: list[str] | None,
    *,
    resume: bool,
    overwrite: bool,
    until_end: bool,
    tell: Callable[[str], None],
) -> "Callable[[], tuple[Session, RowSource, list[Rows]]]":
    """What makes the session of `natkal learn`, its source and the rows already read.

    All that can be wrong with the data is found out first, and reading begins, before JAX is imported.
    """
    able = data and settings.targets
    if goes_on(folder, resume=resume, overwrite=overwrite, able=able, needs="DATA and --target"):
        return lambda: _resumed(folder, settings, data, until_end, tell)
    data = data or []
    source = open_source(data, settings, folder, until_end=until_end)
    if is_kafka(data[0]) and not until_end:
        tell(f"the first {settings.sample:,} messages (--sample) say what the columns are: waiting for them")
    looked = look(settings, source)

    def begin() -> "tuple[Session, RowSource, list[Rows]]":
        from natkal.runs.session import Session

        session, first = Session.begin(folder, settings, source, looked)
        return session, source, first

    return begin


def _resumed(
    folder: Path, settings: Settings, data: list[str] | None, until_end: bool, tell: Callable[[str], None]
) -> "tuple[Session, RowSource, list[Rows]]":
    """The session of the last checkpoint, which goes on where it stood."""
    from natkal.runs.session import Session

    session, warning = Session.resume(folder, model=settings.model)
    if warning:
        tell(warning)
    if settings.targets:
        check_same(settings, session.settings, whole=True)
    else:
        check_same(dataclasses.replace(settings, targets=session.settings.targets), session.settings, whole=False)
    source = open_source(
        data or session.files,
        session.settings,
        folder,
        until_end=until_end,
        position=lambda files: position_in(files, session.files, session.position, ended=session.ended),
        offsets=session.offsets,
    )
    session.files = source.names
    return session, source, []


def open_decisions(
    folder: Path,
    settings: "DecisionSettings",
    data: list[str] | None,
    *,
    resume: bool,
    overwrite: bool,
    encoding: str,
    tell: Callable[[str], None],
) -> "tuple[DecisionSession, Source, list[Rows]]":
    """The session of `natkal decide`, its source and the rows already read."""
    from natkal.runs.decisions import DecisionSession

    if not goes_on(folder, resume=resume, overwrite=overwrite, able=data, needs="DATA"):
        source = Source(absolute(find_files(data or [])), encoding=encoding)
        session, first = DecisionSession.begin(folder, settings, source)
        return session, source, first
    session, warning = DecisionSession.resume(folder)
    if warning:
        tell(warning)
    kept, own = session.kept or {}, session.settings
    check_same(dataclasses.replace(settings, decisions=own.decisions), own, whole=False)
    if settings.decisions not in (None, own.decisions):
        session.settings = dataclasses.replace(own, decisions=settings.decisions)
        session.kept = {name: length for name, length in kept.items() if name != "decisions"}
    if data:
        files = absolute(find_files(data))
        session.position = position_in(files, session.files, session.position, ended=session.ended)
        session.files = files
    return session, Source(session.files, session.position, encoding), []
