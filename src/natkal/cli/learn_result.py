"""What `natkal learn` prints: the data as it understands them, and the result."""

from typing import TYPE_CHECKING, Any

from rich.table import Table

from natkal.cli.terminal import err, out

if TYPE_CHECKING:
    from natkal.runs.session import Session

BASELINES = {True: "class frequencies", False: "mean so far"}


def describe(session: "Session") -> None:
    """What was found out about the data, before anything is learned."""
    schema = session.schema
    for target in schema.targets:
        classes = (
            f": {', '.join(target.classes[:8])}{', ...' if len(target.classes) > 8 else ''}" if target.classes else ""
        )
        err.print(f"target   {target.name}: {target.task} ({target.why}){classes}", soft_wrap=True, markup=False)
    used = ", ".join(f"{feature.name} ({feature.kind})" for feature in schema.features)
    err.print(f"features {used}", soft_wrap=True, markup=False)
    if schema.ignored:
        unused = ", ".join(f"{name} ({reason})" for name, reason in schema.ignored.items())
        err.print(f"ignored  {unused}", soft_wrap=True, markup=False)
    learner = session.learner
    members = len(learner.member_names) - 1
    what = "one filter" if learner.options.single else f"{members} filters, weighed by the data"
    err.print(f"learner  {what}, {session.encoder.width} inputs, past {session.settings.options.past}", markup=False)


def result_of(session: "Session", files: list[str], seconds: float, rows: int, done: bool) -> dict[str, Any]:
    """What `--json` prints."""
    counts = session.counts
    result = {
        "command": "learn",
        "data": files,
        "run": str(session.folder),
        "finished": done,
        "rows": {
            "read": counts.read,
            "learned": counts.learned,
            "rejected": counts.rejected,
            "skipped": counts.skipped,
        },
        "reasons": session.reasons,
        "targets": [part.summary() for part in session.metrics.parts],
        "model": session.settings.model,
        "parameters": session.learner.parameters,
        "keys": len(session.learner.keys),
        "seconds": round(seconds, 3),
        "rows_per_second": round(rows / seconds, 1),
        "warnings": session.warnings(),
    }
    if session.forecasts is not None:
        result["forecasts"] = session.forecasts.summary()
    return result


def print_result(result: dict[str, Any]) -> None:
    """The closing lines: the rows, a table for each target, warnings, where the report is."""
    from natkal.settings.settings import Counts

    counted = Counts(**result["rows"]).accounting()
    out.print(f"{counted}   {result['seconds']:.1f} s, {result['rows_per_second']:,.0f} rows/s", soft_wrap=True)
    for part in result["targets"]:
        table = Table(title=f"{part['target']}, {part['rows']:,} rows, each predicted first", title_justify="left")
        table.add_column("")
        for name in ("natkal", BASELINES[bool("accuracy" in part)], "same as last"):
            table.add_column(name, justify="right")
        for name, value in part.items():
            if not isinstance(value, float) or name.startswith(("baseline_", "last_")) or name == "mean_squared_error":
                continue
            others = [part.get(f"{kind}{name}") for kind in ("baseline_", "last_")]
            cells = ["" if other is None else f"{other:.4g}" for other in others]
            table.add_row(name.replace("_", " "), f"{value:.4g}", *cells)
        out.print(table)
    if "forecasts" in result:
        out.print(_forecast_table(result["forecasts"]))
    for warning in result["warnings"]:
        err.print(f"warning: {warning}", soft_wrap=True, style="yellow")
    if "report" in result:
        out.print(f"report: {result['report']}", soft_wrap=True)


def _forecast_table(forecasts: dict[str, Any]) -> Table | str:
    """A few of the steps ahead, the last among them; a sentence where no forecast has met its row."""
    if not any(one["rows"] for one in forecasts["steps"]):
        return f"forecasts: none scored yet, as the first is made after {forecasts['after_rows']} rows (of a key)"
    table = Table(title="forecasts, by rows ahead", title_justify="left")
    titles = ("rows ahead", "mean absolute error", "same as last", "a period ago", "CRPS", "90% interval holds")
    for name in titles:
        table.add_column(name, justify="right")
    last = forecasts["horizon"]
    names = ("mean_absolute_error", "last_mean_absolute_error", "seasonal_mean_absolute_error", "crps", "coverage_90")
    for one in forecasts["steps"]:
        if one["rows"] and (one["step"] == last or one["step"] in (1, 2, 3, 6, 12, 24, 48, 96)):
            table.add_row(str(one["step"]), *(f"{one[name]:.4g}" for name in names))
    return table
