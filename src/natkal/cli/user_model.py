"""A user's own model, named on the command line as package.module:function."""

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import typer

HINT = "--model"


def load(spec: str) -> tuple[Any, Any, Any]:
    """What the named function returns: (model, inputs, targets). The working directory is searched first."""
    from natkal.models import RecurrentModel, StaticModel

    function = _find(spec)
    try:
        returned = function()
    except Exception as error:
        raise _bad(f"{spec} raised {describe(error)}") from error
    if not isinstance(returned, tuple) or len(returned) != 3:
        got = f"a tuple of {len(returned)}" if isinstance(returned, tuple) else type(returned).__name__
        raise _bad(f"{spec} must return a tuple (model, inputs, targets), got {got}")
    if not isinstance(returned[0], StaticModel | RecurrentModel):
        got = type(returned[0]).__name__
        raise _bad(f"{spec} must return a model made by natkal.static_model or natkal.recurrent_model first, got {got}")
    return returned


def _find(spec: str) -> Callable[[], Any]:
    module_name, colon, function_name = spec.partition(":")
    if not (module_name and colon and function_name):
        raise _bad(f"write it as package.module:function, got {spec!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        wanted = error.name or module_name
        if module_name == wanted or module_name.startswith(wanted + "."):
            raise _bad(f"there is no module {module_name!r} in the working directory or on the Python path") from error
        raise _bad(f"{module_name} imports {wanted!r}, which is not installed") from error
    except Exception as error:
        raise _bad(f"importing {module_name} failed: {describe(error)}") from error
    function = getattr(module, function_name, None)
    if function is None:
        raise _bad(f"module {module_name!r} has no function {function_name!r}")
    if not callable(function):
        raise _bad(f"{spec} is a {type(function).__name__}, not a function")
    return function


def describe(error: Exception) -> str:
    """The error in one line, with the place in the user's code that raised it."""
    text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    return f"{text} ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else text


def _is_users(filename: str) -> bool:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return not filename.startswith((package, "<frozen")) and "site-packages" not in filename


def _bad(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint=HINT)
