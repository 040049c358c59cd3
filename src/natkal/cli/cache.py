"""`natkal cache`: what is kept compiled for the next start, and a way to be rid of it."""

from typing import Annotated

import typer

from natkal.byte_sizes import readable
from natkal.cli.terminal import out, print_json
from natkal.compiling.user_folder import cache_folder, kept_files


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete all of it; it is compiled again when needed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Show what is kept compiled for the next start, or delete it."""
    files = kept_files()
    size = sum(path.stat().st_size for path in files)
    if clear:
        for path in files:
            path.unlink(missing_ok=True)
    if as_json:
        print_json(
            {
                "command": "cache",
                "folder": str(cache_folder()),
                "files": len(files),
                "bytes": size,
                "cleared": clear,
            }
        )
    else:
        deleted = ", deleted" if clear else ""
        out.print(f"{cache_folder()}: {len(files)} files, {readable(size)}{deleted}", markup=False, soft_wrap=True)
