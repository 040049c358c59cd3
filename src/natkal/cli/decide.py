"""`natkal decide`: contexts in, decisions out, rewards by id in the same stream."""

import signal
from typing import Annotated, Any

import typer

from natkal.cli.build import usage_errors, with_options
from natkal.cli.terminal import err, explained, print_json, warn
from natkal.runs.stopping import stop_on_signals
from natkal.settings.decide import DecisionSettings, HowToDecide
from natkal.settings.fields import taken
from natkal.settings.settings import interval


@with_options(DecisionSettings, HowToDecide)
def decide(
    data: Annotated[
        list[str] | None, typer.Argument(help="CSV, JSONL, Parquet or Arrow files, a directory, or - (standard input).")
    ] = None,
    **given: Any,
) -> None:
    """Choose an arm for each row, learn from the rewards that come back, and value the policy on logged decisions.

    A row with an arm is a decision that was taken elsewhere, with its reward. A row with a reward and no arm is the
    reward of an earlier decision, by its id. Every other row is a context that wants a decision.
    """
    with usage_errors():
        settings, how = taken(DecisionSettings, given), taken(HowToDecide, given)
        rows, seconds = interval(how.checkpoint_every)
    if how.as_json and settings.decisions is None:
        raise typer.BadParameter("the decisions need a file: give --out", param_hint="--json")
    if not how.resume and not data:
        raise typer.BadParameter("give DATA, or --resume", param_hint="DATA")

    from natkal.decisions.bandit_options import BanditOptions, check_bandit_options
    from natkal.errors import StreamError
    from natkal.runs.folder import open_decisions
    from natkal.runs.places import with_places
    from natkal.runs.runtime import command

    with explained(StreamError), command():
        settings = with_places(settings)
        check_bandit_options(
            BanditOptions("number", settings.policy, settings.policy_value, settings.model, settings.seed)
        )
        session, source, first = open_decisions(
            how.run,
            settings,
            data,
            resume=how.resume,
            overwrite=how.overwrite,
            encoding=how.encoding,
            tell=warn,
        )
        session.show = typer.echo
        with stop_on_signals() as stopped:
            done = session.run(
                source, first, checkpoint_rows=rows, checkpoint_seconds=seconds, stop=lambda: stopped() is not None
            )
        result = {"command": "decide", "run": str(how.run), "finished": done, **session.summary()}
        if how.report and done:
            from natkal.report import write_decisions_report

            result["report"] = str(write_decisions_report(session))
        if how.as_json:
            print_json(result)
        else:
            _print(result)
        if not done:
            err.print(f"stopped after {session.counts.read:,} rows; natkal decide --resume --run {how.run} goes on")
            raise typer.Exit(128 + (stopped() or signal.SIGTERM))


def _print(result: dict[str, Any]) -> None:
    rows = result["rows"]
    parts = " + ".join(f"{name} {count:,}" for name, count in rows.items() if name != "read" and count)
    err.print(f"read {rows['read']:,} = {parts or '0'}", markup=False)
    for arm, own in result["arms"].items():
        mean = "" if own["mean_reward"] is None else f", mean reward {own['mean_reward']:.4g}"
        err.print(f"  {arm}: chosen {own['chosen']:,} times{mean}", markup=False)
    if result["mean_reward"] is not None:
        err.print(f"mean reward of the decisions {result['mean_reward']:.4g}", markup=False)
    for name, own in result.get("values", {}).items():
        low, high = own["interval"]
        err.print(f"  {name:20} {own['value']:.4g} ({low:.4g} to {high:.4g})", markup=False)
    found = result.get("off_policy")
    if found:
        err.print(f"value of the policy on {found['rows']:,} logged decisions, with 95 percent intervals", markup=False)
        for name in ("logged", "inverse_propensity", "self_normalised", "doubly_robust"):
            low, high = found[name]["interval"]
            label = name.replace("_", " ")
            err.print(f"  {label:20} {found[name]['value']:.4g} ({low:.4g} to {high:.4g})", markup=False)
    if "report" in result:
        err.print(f"report: {result['report']}", markup=False, soft_wrap=True)
