"""`natkal serve`: a run behind HTTP."""

import importlib.util
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natkal.cli.decide import PolicyName, RewardKind
from natkal.cli.options import LearnerKind, Task, names
from natkal.cli.terminal import err, explained, print_json

if TYPE_CHECKING:
    from natkal.runs.decisions import DecisionSettings
    from natkal.runs.session import Session
    from natkal.serve.requests import Limits
    from natkal.serve.served import Served
    from natkal.settings.settings import Settings

NEEDED = ("starlette", "uvicorn", "prometheus_client", "orjson", "uvloop", "httptools")


class Durability(StrEnum):
    """When a learned request is on disk."""

    none = "none"
    group = "group"
    each = "each"


def serve(
    run: Annotated[Path, typer.Argument(help="Folder of a run of `natkal learn` or `natkal decide`, or of a new one.")],
    target: Annotated[list[str] | None, typer.Option(help="From nothing: column to predict.")] = None,
    schema: Annotated[Path | None, typer.Option(help="From nothing: a file whose first rows show the columns.")] = None,
    task: Annotated[Task | None, typer.Option(help="From nothing: what the target is.")] = None,
    features: Annotated[str, typer.Option(help="From nothing: columns to use, as in `natkal learn`.")] = "",
    classes: Annotated[str, typer.Option(help="From nothing: all classes of the target.")] = "",
    learner: Annotated[LearnerKind, typer.Option(help="From nothing: auto or single.")] = LearnerKind.auto,
    model: Annotated[
        str, typer.Option(help="From nothing: as in `natkal learn`; else the run's own package.module:function.")
    ] = "auto",
    key: Annotated[str | None, typer.Option(help="From nothing: column of keys.")] = None,
    past: Annotated[str, typer.Option(help="From nothing: earlier targets as inputs, none or lags.")] = "none",
    budget: Annotated[str, typer.Option(help="From nothing: as in `natkal learn`.")] = "auto",
    memory: Annotated[str | None, typer.Option(help="From nothing: as in `natkal learn`.")] = None,
    arms: Annotated[str, typer.Option(help="From nothing, a bandit: the arms to choose from, as a,b,c.")] = "",
    reward_kind: Annotated[
        RewardKind, typer.Option(help="From nothing, a bandit: what a reward is; auto is number.")
    ] = RewardKind.auto,
    policy: Annotated[
        PolicyName, typer.Option(help="From nothing, a bandit: how an arm is chosen.")
    ] = PolicyName.thompson,
    seed: Annotated[int, typer.Option(min=0, help="From nothing: seed of the first weights.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    token_file: Annotated[Path | None, typer.Option(help="File with the bearer token that requests need.")] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Let anyone in who can reach the address.")] = False,
    durability: Annotated[
        Durability,
        typer.Option(help="Sync the log for each group of requests, for each one, or leave it to the system."),
    ] = Durability.group,
    checkpoint_every: Annotated[float, typer.Option(min=0.1, help="Seconds between checkpoints.")] = 30.0,
    keep: Annotated[int, typer.Option(min=2, help="How many checkpoints to keep.")] = 5,
    max_body: Annotated[int, typer.Option(min=1024, help="Bytes of a request.")] = 8 << 20,
    max_rows: Annotated[int, typer.Option(min=1, help="Rows of a request.")] = 10_000,
    max_waiting: Annotated[int, typer.Option(min=1, help="Rows that may wait to be learned.")] = 50_000,
    max_ids: Annotated[int, typer.Option(min=1, help="Rows that may wait for their label.")] = 100_000,
    max_connections: Annotated[int, typer.Option(min=1, help="Connections at once.")] = 1024,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds a request may take.")] = 30.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object once ready, and nothing else.")
    ] = False,
) -> None:
    """Serve a run over HTTP: predict and learn, or decide and learn from rewards, and a live page.

    What is acknowledged survives a kill.
    """
    if (schema is None) != (not target):
        raise typer.BadParameter("--target and --schema start a new run together", param_hint="--schema")
    if arms and target:
        raise typer.BadParameter("a new run predicts (--target) or decides (--arms)", param_hint="--arms")

    from natkal.errors import StreamError
    from natkal.runs.decisions import DecisionSettings
    from natkal.runs.runtime import command
    from natkal.settings.settings import Settings

    with explained(StreamError):
        check_installed("natkal serve")
        settings = Settings(
            targets=tuple(target or ()),
            task=None if task is None else task.value,
            features=names(features),
            classes=names(classes),
            key=key,
            learner=learner.value,
            model=model,
            past=past,
            budget=budget,
            memory=memory,
            seed=seed,
        )
        decisions = DecisionSettings(
            arms=names(arms), reward_kind=reward_kind.value, policy=policy.value, model=model, seed=seed
        )
        _check_run(run, new=schema is not None or bool(arms))
        with command():
            from natkal.serve.requests import Limits
            from natkal.serve.server import listen, make_access, serve
            from natkal.serve.service import Service

            access = make_access(host, token_file, no_auth=no_auth)
            limits = Limits(max_body, max_rows, max_waiting, max_ids, connections=max_connections, seconds=timeout)
            listening = listen(host, port)
            address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"

            def build() -> Service:
                return Service(
                    run,
                    lambda limits: fresh_run(run, limits, settings, schema, decisions if arms else None),
                    limits=limits,
                    durability=durability.value,
                    checkpoint_seconds=checkpoint_every,
                    keep=keep,
                    model=model,
                )

            def ready(service: Service) -> None:
                if as_json:
                    print_json({"command": "serve", "run": str(run), "address": address, "replayed": service.replayed})
                else:
                    err.print(f"ready: {address}  ({service.replayed:,} requests replayed)", markup=False)

            if not as_json:
                err.print(f"listening on {address}, loading {run}", markup=False)
            version = serve(build, listening, access, limits, ready=ready)
            if not as_json and version is not None:
                err.print(f"checkpoint {version.number} with {version.rows:,} rows written", markup=False)


def check_installed(what: str) -> None:
    """Refuse, with the command that installs it, where a library is missing."""
    from natkal.errors import StreamError

    lacking = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if lacking:
        raise StreamError(f"{what} needs {', '.join(lacking)}: pip install 'natkal[serve]'")


def _check_run(run: Path, *, new: bool) -> None:
    """All that can be wrong with the folder, before anything is loaded."""
    from natkal.errors import StreamError
    from natkal.runs import checkpoint

    there = checkpoint.exists(run)
    if not new and not there:
        raise StreamError(
            f"{run}: holds no run; natkal learn or natkal decide makes one, --target and --schema or --arms start "
            "from nothing"
        )
    if new and there:
        raise StreamError(f"{run}: holds a run; leave --target, --schema and --arms out to go on with it")


def fresh_run(
    run: Path, limits: "Limits", settings: "Settings", schema: Path | None, decisions: "DecisionSettings | None" = None
) -> "Served":
    """The run as another command left it, or one that has seen nothing."""
    from natkal.decisions.bandit_options import BanditOptions, check_bandit_options
    from natkal.runs.decisions import DecisionSession
    from natkal.serve.restoring import as_left
    from natkal.serve.served_bandit import ServedBandit
    from natkal.serve.served_table import ServedTable

    if schema is not None:
        return ServedTable(_begun(run, settings, schema), limits)
    if decisions is not None:
        check_bandit_options(BanditOptions("number", decisions.policy, None, decisions.model, decisions.seed))
        run.mkdir(parents=True, exist_ok=True)
        return ServedBandit(DecisionSession(run, decisions), limits)
    served, warning = as_left(run, limits, settings.model)
    if warning:
        err.print(warning, markup=False, soft_wrap=True)
    return served


def _begun(run: Path, settings: "Settings", schema: Path) -> "Session":
    """A run that has seen nothing, with the columns of the first rows of a file."""
    from natkal.reading.source import Source, find_files
    from natkal.runs.folder import take_over
    from natkal.runs.session import Session

    source = Source(find_files([str(schema)]))
    session, _ = Session.begin(run, settings, source)
    source.close()
    session.files = []
    take_over(session)
    return session
