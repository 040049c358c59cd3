"""`natkal bench`: what the project claims to be fast or good at, measured here and now."""

from importlib import import_module
from typing import Annotated, Any

import typer
from rich.table import Table

from natkal.bench import BENCHMARKS
from natkal.cli.terminal import err, out, print_json


def bench(
    name: Annotated[str, typer.Argument(help="Which benchmark: " + ", ".join(BENCHMARKS) + ".")],
    part: Annotated[list[str] | None, typer.Option(help="Only this part of it; may be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Run a benchmark. Rivals get their best setting in hindsight; rows where natkal loses are kept."""
    if name not in BENCHMARKS:
        raise typer.BadParameter(f"there is no benchmark {name!r}; there are: {', '.join(BENCHMARKS)}")
    try:
        module = import_module(BENCHMARKS[name])
        wanted = part or list(module.PARTS)
        for given in wanted:
            if given not in module.PARTS:
                raise typer.BadParameter(
                    f"{name} has no part {given!r}; it has: {', '.join(module.PARTS)}", param_hint="--part"
                )
        report = (lambda note: None) if as_json else (lambda note: err.print(note, markup=False))
        results = {given: module.run_part(given, report) for given in wanted}
    except ModuleNotFoundError as error:
        raise typer.BadParameter(f"{name} needs {error.name!r}: pip install 'natkal[bench]'") from error
    if as_json:
        print_json({"command": "bench", "name": name, **results})
        return
    for title, rows, columns in module.tables(results):
        out.print(_table(title, rows, columns))


def _table(title: str, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column.replace("_", " "), justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*[f"{row[name]:.4g}" if isinstance(row[name], float) else str(row[name]) for name in columns])
    return table
