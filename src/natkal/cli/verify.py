"""`natkal verify`: the paper's theorems, run on built-in models or on the user's own."""

import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from natkal.cli import user_model
from natkal.cli.terminal import out, print_json, progress

if TYPE_CHECKING:
    from natkal.paper import Case, ClaimResult


class Precision(StrEnum):
    """What the theorems are computed in."""

    float64 = "float64"
    float32 = "float32"


TOLERANCE = {Precision.float64: 1e-10, Precision.float32: 1e-2}


def verify(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE.MODULE:FUNCTION",
            help="Your own model: a function that takes nothing and returns (model, inputs, targets).",
        ),
    ] = None,
    case: Annotated[
        str | None, typer.Option("--case", "--family", help="Only built-in cases whose name contains this.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Observations to run (default: the whole stream).")] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Largest relative deviation that passes (default: 1e-10 in float64, 1e-2 in float32)."),
    ] = None,
    dtype: Annotated[Precision, typer.Option(help="Precision of every number.")] = Precision.float64,
    every: Annotated[bool, typer.Option("--all", help="A row per claim and model, not the worst model alone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Run the paper's theorems and say how far apart their two sides are; exit 1 if a claim fails."""
    import jax

    if model is not None and case is not None:
        raise typer.BadParameter("chooses among the built-in cases; leave it out with --model", param_hint="--case")
    allowed = TOLERANCE[dtype] if tolerance is None else tolerance
    if not allowed > 0:
        raise typer.BadParameter(f"must be positive, got {allowed:g}", param_hint="--tolerance")
    started = time.perf_counter()
    with jax.enable_x64(dtype is Precision.float64):
        cases = _builtin_cases(case) if model is None else [_user_case(model)]
        rows = list(_run([_shorten(one, steps) for one in cases], allowed, quiet=as_json))
    failed = [row for row in rows if not row.passed]
    if as_json:
        print_json(
            {
                "command": "verify",
                "passed": not failed,
                "dtype": dtype.value,
                "tolerance": allowed,
                "models": len(cases),
                "claims": len(rows),
                "failed": len(failed),
                "seconds": round(time.perf_counter() - started, 3),
                "results": [row._asdict() for row in rows],
            }
        )
    else:
        out.print(_table(rows if every or len(cases) == 1 else _worst(rows), models=len(cases)))
        _print_summary(rows, models=len(cases), dtype=dtype, seconds=time.perf_counter() - started)
    if failed:
        raise typer.Exit(1)


# -- what to run -------------------------------------------------------------------------------------------------------


def _builtin_cases(wanted: str | None) -> "list[Case]":
    from natkal.paper import builtin_cases

    cases = builtin_cases()
    chosen = [case for case in cases if wanted is None or wanted.casefold() in case.name.casefold()]
    if not chosen:
        names = "; ".join(case.name for case in cases)
        raise typer.BadParameter(
            f"no built-in case has {wanted!r} in its name. There are: {names}", param_hint="--case"
        )
    return chosen


def _user_case(spec: str) -> "Case":
    from natkal.paper import Case

    loaded, inputs, targets = user_model.load(spec)
    return Case(name=spec, model=loaded, inputs=inputs, targets=targets, prior_cov=None)


def _shorten(case: "Case", steps: int | None) -> "Case":
    """The case on its first `steps` observations."""
    import jax

    try:
        length = len(case.targets)
    except TypeError as error:
        raise typer.BadParameter(
            f"targets must be an array with one row per observation, got {case.targets!r}", param_hint="--model"
        ) from error
    if steps is None:
        return case
    if steps > length:
        raise typer.BadParameter(f"the stream of {case.name} has only {length} rows, got {steps}", param_hint="--steps")
    inputs, targets = jax.tree.map(lambda rows: rows[:steps], (case.inputs, case.targets))
    return case._replace(inputs=inputs, targets=targets)


def _run(cases: "Sequence[Case]", tolerance: float, *, quiet: bool) -> "Iterator[ClaimResult]":
    from natkal import paper

    with progress(len(cases), "models", quiet=quiet) as report:
        for done, case in enumerate(cases):
            report(done, case.name)
            try:
                yield from paper.verify(
                    case.model,
                    case.inputs,
                    case.targets,
                    prior_cov=case.prior_cov,
                    tolerance=tolerance,
                    name=case.name,
                )
            except (ValueError, TypeError) as error:
                raise typer.BadParameter(
                    f"{case.name}: {user_model.describe(error)}", param_hint="the model"
                ) from error
        report(len(cases), "")


# -- what to show ------------------------------------------------------------------------------------------------------


def _size(row: "ClaimResult") -> float:
    """How near its tolerance a row is; a deviation that is not a number counts as infinite."""
    found = [value for value in (row.params_deviation, row.matrix_deviation) if value is not None]
    return max((value / row.tolerance if value == value else float("inf") for value in found), default=0.0)


def _worst(rows: "Sequence[ClaimResult]") -> "list[ClaimResult]":
    """For each claim, the row of the model it holds least well on."""
    worst: dict[tuple[str, str], ClaimResult] = {}
    for row in rows:
        key = (row.claim, row.setting)
        if key not in worst or _size(row) > _size(worst[key]):
            worst[key] = row
    return list(worst.values())


def _table(rows: "Sequence[ClaimResult]", models: int) -> Table:
    from natkal.paper.claims import STATEMENTS

    order = list(STATEMENTS)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("claim", overflow="fold")
    if models > 1:
        table.add_column("model")
    for column in ("steps", "params", "matrix", "allowed"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in sorted(rows, key=lambda row: order.index(row.claim)):
        cells: list[str | Text] = [f"{row.claim}, {row.setting}" if row.setting else row.claim]
        if models > 1:
            cells.append(row.model)
        cells += [f"{row.steps:,}", _number(row.params_deviation), _number(row.matrix_deviation)]
        cells += [_number(row.tolerance), Text("pass", "green") if row.passed else Text("FAIL", "bold red")]
        table.add_row(*cells)
    return table


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1e}" if value < 0.1 else f"{value:.2f}"


def _print_summary(rows: "Sequence[ClaimResult]", *, models: int, dtype: Precision, seconds: float) -> None:
    failed = [row for row in rows if not row.passed]
    where = f"{models} models" if models > 1 else rows[0].model
    what = f"{len(rows)} checks on {where} in {dtype.value}, {seconds:.0f} s"
    if not failed:
        out.print(f"[green]All passed:[/] {what}.", markup=True)
        return
    out.print(f"[bold red]{len(failed)} failed[/] of {what}.", markup=True)
    for row in {row.claim: row for row in reversed(failed)}.values():
        models_failed = dict.fromkeys(other.model for other in failed if other.claim == row.claim)
        out.print(f"  {row.claim} ({row.statement}): {'; '.join(models_failed)}", markup=False)
