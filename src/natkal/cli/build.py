"""A command made from the fields of settings: one field is one option, with its default, help, panel and checks."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, StrEnum
from typing import Annotated, Any, get_args

import typer

from natkal.errors import StreamError
from natkal.settings.fields import Named, options_of


@contextmanager
def usage_errors() -> Iterator[None]:
    """An option that cannot be: its sentence, and exit code 2."""
    try:
        yield
    except StreamError as error:
        raise typer.BadParameter(str(error)) from error


def with_options(
    *owners: type, only: Mapping[type, Mapping[str, str]] | None = None, **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these dataclasses; they come to its `**options`, by the names that users write.

    `only`: of these dataclasses no more than these options, with words of the command's own. `defaults`: those that
    differ.
    """
    words = only or {}
    found = [one for one in options_of(*owners) if one.owner not in words or one.name in words[one.owner]]
    for owner, chosen in words.items():  # in the order of the command's own words
        places = [at for at, one in enumerate(found) if one.owner is owner]
        own = {found[at].name: found[at] for at in places}
        for at, name in zip(places, chosen, strict=True):
            found[at] = own[name]
    every = {one.name: _parameter(one, words.get(one.owner, {}).get(one.name), defaults) for one in found}
    tuples = {one.name: one for one in options_of(*owners) if one.option.many or isinstance(one.default, tuple)}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        def command(**given: Any) -> None:
            function(**{name: _plain(value, tuples.get(name)) for name, value in given.items()})

        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        parameters = [*own, *every.values()]
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        return command

    return decorate


def _parameter(one: Named, words: str | None, defaults: Mapping[str, Any]) -> inspect.Parameter:
    """The parameter that typer makes an option from."""
    known = one.option
    default = defaults.get(one.name, one.default)
    kind: Any = one.type
    if known.many:
        kind, default = list[str] | None, None
    elif isinstance(one.default, tuple):
        kind, default = str, ",".join(default)
    elif known.choices:
        kind = StrEnum(one.name, {choice: choice for choice in known.choices})
        kind, default = (kind | None, None) if default is None else (kind, kind(default))
    elif str in get_args(kind):  # text or a number: text is what a command line gives
        kind = str | None
    spelling = known.spelling or (f"--{one.name.replace('_', '-')}",)
    said: dict[str, Any] = {"help": known.help, "metavar": known.metavar, "rich_help_panel": known.panel}
    if words is not None:
        said = {"help": words}
    info = typer.Option(*spelling, min=known.least, max=known.most, show_default=known.shown, **said)
    annotation = Annotated[kind, info]
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _plain(value: Any, one: Named | None) -> Any:
    """What the command line gave as the field has it: words with commas between them as a tuple."""
    if isinstance(value, Enum):
        return value.value
    if one is None:
        return value
    words = value if one.option.many else [word.strip() for word in value.split(",") if word.strip()]
    return tuple(words or ())
