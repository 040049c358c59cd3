"""Where a run goes on that is resumed: in its own files, or at the start of others."""

from collections.abc import Sequence
from pathlib import Path

from natkal.errors import StreamError
from natkal.reading.source import STDIN, absolute
from natkal.tables.schema.rows import Position, printable

START = Position(0, 0, 1)


def position_in(files: Sequence[str], own: Sequence[str], stands: Position, *, ended: bool) -> Position:
    """The place in `files` of the first row that the run has not read.

    `own` are the files it read last, `stands` its place in them. `ended`: it read them to the end. Files in which the
    run stands are read on, whatever follows them too; a run that read its own files to the end goes on at the start of
    others; one that did not, in the same files elsewhere (of the same names), or not at all: its rows would be lost.
    """
    if stands.file >= len(own) or (stands.file, stands.offset) == (0, 0):
        return START
    names, known = absolute(files), absolute(own)
    current = known[stands.file]
    if current in names:
        place = names.index(current)
        unread = [name for name in names[:place] if name not in known]
        if unread:
            raise StreamError(
                f"--resume: {printable(unread[0])} has not been read and comes before {printable(current)}, in which "
                "the run stands; give the files after it, or by itself what is new"
            )
        return stands._replace(file=place)
    if ended or current == STDIN:
        return START
    count = stands.file + 1
    if [Path(name).name for name in names[:count]] == [Path(name).name for name in known[:count]]:
        return stands
    raise StreamError(
        f"--resume: the run stands in {printable(current)}, line {stands.line:,}, and has not read all of it; leave "
        "DATA out to go on there, and give new files afterwards"
    )
