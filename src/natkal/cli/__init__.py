"""What a person sees: the command `natkal`. JAX is imported inside the commands, so that `--help` is immediate."""

import atexit
import gc
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import natkal
from natkal.cli.cache import cache
from natkal.cli.decide import decide
from natkal.cli.forecast import forecast
from natkal.cli.learn import learn
from natkal.cli.plan import plan
from natkal.cli.predict import predict
from natkal.cli.report import report
from natkal.cli.serve import serve
from natkal.cli.verify import verify
from natkal.runs.stopping import watch


class Command(TyperCommand):
    """A command whose flags are listed without a type: they take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, `--help` among them."""
        found: list[Any] = list(super().get_params(ctx))
        for param in found:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return found


app = typer.Typer(
    name="natkal",
    help="Learning from a stream, one observation at a time: online natural gradient as a Kalman filter.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.command(cls=Command)(decide)
app.command(cls=Command)(learn)
app.command(cls=Command)(plan)
app.command(cls=Command)(predict)
app.command(cls=Command)(forecast)
app.command(cls=Command)(report)
app.command(cls=Command)(serve)
app.command(cls=Command)(verify)
app.command(cls=Command)(cache)


def _show_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"natkal {natkal.__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    gc.set_threshold(100_000, 20, 20)  # importing JAX makes half a million objects that stay: do not look through them
    watch()
    atexit.register(gc.freeze)  # nor when all of them go
    app()


__all__ = ["app", "main"]
