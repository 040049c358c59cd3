"""`natkal decide`: contexts in, decisions out, rewards by id in the same stream."""

import signal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from natkal.cli.options import interval, names
from natkal.cli.terminal import err, explained, print_json, warn
from natkal.runs.stopping import stop_on_signals


class RewardKind(StrEnum):
    """What a reward is."""

    auto = "auto"
    binary = "binary"
    number = "number"
    counts = "count"


class PolicyName(StrEnum):
    """How an arm is chosen."""

    thompson = "thompson"
    ucb = "ucb"
    epsilon_greedy = "epsilon-greedy"
    greedy = "greedy"


def decide(
    data: Annotated[
        list[str] | None, typer.Argument(help="CSV, JSONL, Parquet or Arrow files, a directory, or - (standard input).")
    ] = None,
    arms: Annotated[str, typer.Option(help="The arms to choose from: a,b,c (default: those of the log).")] = "",
    row_id: Annotated[str, typer.Option("--id", help="Column of ids: rewards come back by them.")] = "id",
    reward: Annotated[str, typer.Option(help="Column of rewards.")] = "reward",
    arm: Annotated[str, typer.Option(help="Column of arms: a row that has one was decided elsewhere.")] = "arm",
    probability: Annotated[str, typer.Option(help="Column of the probabilities of such decisions.")] = "probability",
    reward_kind: Annotated[
        RewardKind, typer.Option(help="What a reward is (default: binary where the first ones are 0 and 1).")
    ] = RewardKind.auto,
    policy: Annotated[PolicyName, typer.Option(help="How an arm is chosen.")] = PolicyName.thompson,
    policy_value: Annotated[
        float | None,
        typer.Option(help="ucb: deviations. epsilon-greedy: share. thompson: floor, the share of random arms."),
    ] = None,
    model: Annotated[str, typer.Option(help="auto, linear or mlp:64,64.")] = "auto",
    ignore: Annotated[str, typer.Option(help="Columns that say nothing about a context: a,b,c.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first weights and of the draws.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write decisions here, as JSON lines (default: print them).")] = None,
    run: Annotated[Path, typer.Option(help="Folder for checkpoints and rejects.")] = Path("natkal-decisions"),
    checkpoint_every: Annotated[str, typer.Option(help="Rows (10000) or seconds (30s) between checkpoints.")] = "30s",
    encoding: Annotated[str, typer.Option(help="Encoding of text files: utf-8, cp1252, utf-16, ...")] = "utf-8",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in the folder.")] = False,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write an HTML report at the end.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end (needs --out).")] = False,
) -> None:
    """Choose an arm for each row, learn from the rewards that come back, and value the policy on logged decisions.

    A row with an arm is a decision that was taken elsewhere, with its reward. A row with a reward and no arm is the
    reward of an earlier decision, by its id. Every other row is a context that wants a decision.
    """
    if as_json and out is None:
        raise typer.BadParameter("the decisions need a file: give --out", param_hint="--json")
    if not resume and not data:
        raise typer.BadParameter("give DATA, or --resume", param_hint="DATA")
    rows, seconds = interval(checkpoint_every)

    from natkal.decisions.bandit_options import BanditOptions, check_bandit_options
    from natkal.errors import StreamError
    from natkal.runs.decisions import DecisionSettings
    from natkal.runs.folder import open_decisions
    from natkal.runs.places import check_place
    from natkal.runs.runtime import command

    with explained(StreamError), command():
        settings = DecisionSettings(
            arms=names(arms),
            id=row_id,
            arm=arm,
            reward=reward,
            probability=probability,
            reward_kind=reward_kind.value,
            policy=policy.value,
            policy_value=policy_value,
            model=model,
            ignore=names(ignore),
            seed=seed,
            decisions=check_place(None if out is None else str(out), "--out", "jsonl"),
        )
        check_bandit_options(BanditOptions("number", policy.value, policy_value, model, seed))
        session, source, first = open_decisions(
            run, settings, data, resume=resume, overwrite=overwrite, encoding=encoding, tell=warn
        )
        session.show = typer.echo
        with stop_on_signals() as stopped:
            done = session.run(
                source, first, checkpoint_rows=rows, checkpoint_seconds=seconds, stop=lambda: stopped() is not None
            )
        result = {"command": "decide", "run": str(run), "finished": done, **session.summary()}
        if report and done:
            from natkal.report import write_decisions_report

            result["report"] = str(write_decisions_report(session))
        if as_json:
            print_json(result)
        else:
            _print(result)
        if not done:
            err.print(f"stopped after {session.counts.read:,} rows; natkal decide --resume --run {run} goes on")
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
