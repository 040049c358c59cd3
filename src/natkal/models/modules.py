"""Modules of other libraries as functions of parameters: Equinox, Flax NNX and Flax Linen.

A library is never imported from here: whoever holds one of its modules has imported it already.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from natkal.typing import Array, Params


class Functional(NamedTuple):
    """A module taken apart: `call(params, *inputs)` is the module with these parameters.

    `output` names the entry of a cell's state that is read out, where the state has several.
    """

    call: Callable[..., Any]
    params: Params
    cell: Callable[[Params, Any, Any], Any]
    output: int


def is_module(value: Any) -> bool:
    """Whether this is a module of one of the libraries."""
    return _library(value) is not None


def functional(module: Any, params: Params | None = None) -> Functional:
    """Take a module apart. Only floating-point parameters are learned; all else stays as it is in the module.

    A Linen module holds no parameters: give its variables, or the `params` among them, as `params`.
    """
    match _library(module):
        case "equinox":
            return _equinox(module, params)
        case "nnx":
            return _nnx(module, params)
        case "linen":
            return _linen(module, params)
    raise ValueError(f"module: {type(module).__name__} is of none of the libraries Equinox, Flax NNX and Flax Linen")


def _library(value: Any) -> str | None:
    for name, home in (("equinox", "equinox"), ("nnx", "flax.nnx"), ("linen", "flax.linen")):
        library = sys.modules.get(home)
        if library is not None and isinstance(value, library.Module):
            return name
    return None


def _equinox(module: Any, params: Params | None) -> Functional:
    """Inexact arrays are parameters; `eqx.combine(params, module)` is the learned module."""
    equinox: Any = sys.modules["equinox"]
    own, static = equinox.partition(module, equinox.is_inexact_array)

    def call(params: Params, *inputs: Any) -> Any:
        return equinox.combine(params, static)(*inputs)

    return Functional(
        call=call,
        params=own if params is None else params,
        cell=lambda params, state, inputs: call(params, inputs, state),
        output=0,
    )


def _nnx(module: Any, params: Params | None) -> Functional:
    """`nnx.Param`s are parameters; `nnx.update(module, params)` puts the learned ones back."""
    nnx: Any = sys.modules["flax.nnx"]
    graph, own, rest = nnx.split(module, nnx.Param, ...)

    def call(params: Params, *inputs: Any) -> Any:
        return nnx.merge(graph, params, rest)(*inputs)

    return Functional(
        call=call,
        params=own if params is None else params,
        cell=lambda params, state, inputs: call(params, state, inputs)[0],
        output=-1,
    )


def _linen(module: Any, params: Params | None) -> Functional:
    """The collection `params` is learned; the others (batch statistics) are read."""
    if params is None:
        raise ValueError("params: a Linen module holds none; give what module.init(key, inputs) returned")
    variables = params if "params" in params else {"params": params}
    rest = {name: collection for name, collection in variables.items() if name != "params"}

    def call(params: Params, *inputs: Any) -> Any:
        return module.apply({**rest, "params": params}, *inputs)

    return Functional(
        call=call,
        params=variables["params"],
        cell=lambda params, state, inputs: call(params, state, inputs)[0],
        output=-1,
    )


def static_parts(module: Any, params: Params | None) -> tuple[Callable[[Params, Any], Array], Params]:
    """`apply` and parameters of a module that maps one input to outputs."""
    parts = functional(module, params)
    return parts.call, parts.params


def recurrent_parts(
    cell: Any, readout: Any, params: Params | None
) -> tuple[Callable[..., Any], Callable[..., Any], Params]:
    """Cell, readout and `{"cell": .., "readout": ..}` of two modules; the readout reads the cell's output."""
    if not is_module(readout):
        raise ValueError("readout: must be a module too, where the cell is one (a linear layer for instance)")
    given = {"cell": None, "readout": None} if params is None else params
    inner, outer = functional(cell, given["cell"]), functional(readout, given["readout"])

    def advance(params: Params, state: Any, inputs: Any) -> Any:
        return inner.cell(params["cell"], state, inputs)

    def read(params: Params, state: Any, inputs: Any) -> Array:
        return outer.call(params["readout"], jax.tree.leaves(state)[inner.output])

    return advance, read, {"cell": inner.params, "readout": outer.params}
