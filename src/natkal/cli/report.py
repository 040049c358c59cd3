"""`natkal report`: the picture of a run, from its last checkpoint."""

from pathlib import Path
from typing import Annotated

import typer

from natkal.cli.terminal import err, explained, out, print_json


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run that `natkal learn` or `natkal decide` left.")],
    to: Annotated[Path | None, typer.Option("--out", help="Where to (default: report.html in the run).")] = None,
    model: Annotated[str | None, typer.Option(help="package.module:function, if the run used one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Write the report of a run: one HTML file that needs nothing else."""
    from natkal.errors import StreamError
    from natkal.runs.runtime import command

    with command(), explained(StreamError):
        from natkal.report import write_decisions_report, write_report
        from natkal.runs import checkpoint
        from natkal.runs.decisions import DecisionSession
        from natkal.runs.session import Session

        found = checkpoint.find(run)
        decisions = found is not None and "decisions" in found[1]
        if decisions:
            session, warning = DecisionSession.resume(run)
            where = write_decisions_report(session, to)
        else:
            session, warning = Session.resume(run, model=model)
            session.metrics.close()  # the last window counts as far as it goes
            where = write_report(session, to)
        if warning:
            err.print(warning, markup=False, soft_wrap=True)
        if as_json:
            print_json({"command": "report", "run": str(run), "report": str(where), "rows": session.counts.read})
        else:
            out.print(f"report: {where}", soft_wrap=True, markup=False)
