"""`natkal serve`: a run behind HTTP."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natkal.cli.build import usage_errors, with_options
from natkal.cli.terminal import err, explained, print_json
from natkal.settings.decide import DecisionSettings
from natkal.settings.fields import taken
from natkal.settings.serve import HowToServe, Limits
from natkal.settings.settings import Settings, check_settings

if TYPE_CHECKING:
    from natkal.runs.session import Session
    from natkal.serve.served import Served

NEEDED = ("starlette", "uvicorn", "prometheus_client", "orjson", "uvloop", "httptools")


LEARNED = {
    "target": "From nothing: column to predict.",
    "task": "From nothing: what the target is.",
    "features": "From nothing: columns to use, as in `natkal learn`.",
    "classes": "From nothing: all classes of the target.",
    "learner": "From nothing: auto or single.",
    "model": "From nothing: as in `natkal learn`; else the run's own package.module:function.",
    "key": "From nothing: column of keys.",
    "past": "From nothing: earlier targets as inputs, none or lags.",
    "budget": "From nothing: as in `natkal learn`.",
    "memory": "From nothing: as in `natkal learn`.",
}
"""What a new run that predicts is made from."""
DECIDED = {
    "arms": "From nothing, a bandit: the arms to choose from, as a,b,c.",
    "reward_kind": "From nothing, a bandit: what a reward is; auto is number.",
    "policy": "From nothing, a bandit: how an arm is chosen.",
    "seed": "From nothing: seed of the first weights.",
}
"""What a new run that decides is made from."""


@with_options(
    Settings,
    DecisionSettings,
    HowToServe,
    Limits,
    only={Settings: LEARNED, DecisionSettings: DECIDED},
    past="none",
    learner="auto",
)
def serve(
    run: Annotated[Path, typer.Argument(help="Folder of a run of `natkal learn` or `natkal decide`, or of a new one.")],
    **given: Any,
) -> None:
    """Serve a run over HTTP: predict and learn, or decide and learn from rewards, and a live page.

    What is acknowledged survives a kill.
    """
    with usage_errors():
        settings, decisions = taken(Settings, given), taken(DecisionSettings, given)
        how, limits = taken(HowToServe, given), taken(Limits, given)
        check_settings(settings)
    schema = how.schema
    if (schema is None) != (not settings.targets):
        raise typer.BadParameter("--target and --schema start a new run together", param_hint="--schema")
    if decisions.arms and settings.targets:
        raise typer.BadParameter("a new run predicts (--target) or decides (--arms)", param_hint="--arms")

    from natkal.errors import StreamError
    from natkal.runs.runtime import command

    with explained(StreamError):
        check_installed("natkal serve")
        _check_run(run, new=schema is not None or bool(decisions.arms))
        with command():
            from natkal.serve.server import listen, make_access, serve
            from natkal.serve.service import Service

            access = make_access(how.host, how.token_file, no_auth=how.no_auth)
            listening = listen(how.host, how.port)
            address = f"http://{f'[{how.host}]' if ':' in how.host else how.host}:{listening.getsockname()[1]}"

            def build() -> Service:
                return Service(
                    run,
                    lambda limits: fresh_run(run, limits, settings, schema, decisions if decisions.arms else None),
                    limits=limits,
                    durability=how.durability,
                    checkpoint_seconds=how.checkpoint_every,
                    keep=how.keep,
                    model=settings.model,
                )

            def ready(service: Service) -> None:
                if how.as_json:
                    print_json({"command": "serve", "run": str(run), "address": address, "replayed": service.replayed})
                else:
                    err.print(f"ready: {address}  ({service.replayed:,} requests replayed)", markup=False)

            if not how.as_json:
                err.print(f"listening on {address}, loading {run}", markup=False)
            version = serve(build, listening, access, limits, ready=ready)
            if not how.as_json and version is not None:
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
