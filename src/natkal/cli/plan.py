"""`natkal plan`: what each curvature would cost for a network, and which one to take."""

from typing import Annotated

import typer

from natkal.cli.terminal import out, print_json


def plan(
    layers: Annotated[str, typer.Argument(help="Layer sizes of a network, input first: 784,100,10.")] = "784,100,10",
    memory: Annotated[str | None, typer.Option(help="Budget: 4GB, 500MB (default: what is free now).")] = None,
    timed: Annotated[bool, typer.Option("--time/--no-time", help="Measure a step of each curvature that fits.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Memory, work and time of every curvature for a classifier with these layers, and a recommendation."""
    sizes, budget = _sizes(layers), _bytes(memory)

    import jax
    import jax.numpy as jnp

    import natkal as nk

    abstract = jax.eval_shape(lambda: nk.mlp_params(jax.random.key(0), sizes))
    family = nk.families.Categorical(sizes[-1], minimal=False)
    params = nk.mlp_params(jax.random.key(0), sizes) if timed else abstract
    model = nk.static_model(nk.mlp_apply, params, family)
    result = nk.plan(model, memory=budget, **({"inputs": jnp.ones(sizes[0]), "target": 0} if timed else {}))
    if as_json:
        print_json(
            {
                "command": "plan",
                "layers": sizes,
                "parameters": result.parameters,
                "memory": result.memory,
                "recommended": result.recommended,
                "curvatures": [cost._asdict() for cost in result.costs],
            }
        )
    else:
        out.print(str(result), markup=False, soft_wrap=True)
    if result.recommended is None:
        raise typer.Exit(1)


def _sizes(layers: str) -> list[int]:
    try:
        sizes = [int(part) for part in layers.split(",")]
    except ValueError:
        sizes = []
    if len(sizes) < 2 or min(sizes) < 1 or sizes[-1] < 2:
        raise typer.BadParameter(f"must be sizes like 784,100,10, got {layers!r}", param_hint="LAYERS")
    return sizes


def _bytes(memory: str | None) -> int | None:
    from natkal.byte_sizes import parse_bytes

    size = None if memory is None else parse_bytes(memory)
    if memory is None or size is not None:
        return size
    raise typer.BadParameter(f"must be like 4GB or 500MB, got {memory!r}", param_hint="--memory")
