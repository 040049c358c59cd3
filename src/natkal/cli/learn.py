"""`natkal learn`: a small network learns the embedded stream online, and says how well."""

import itertools
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from natkal.cli.terminal import err, out, print_json, progress

if TYPE_CHECKING:
    import numpy as np

BLOCK = 64
CLASSES = 10


def learn(
    hidden: Annotated[int, typer.Option(min=1, help="Hidden units of the network.")] = 20,
    prior_scale: Annotated[float, typer.Option(help="Prior variance of each weight, in units of 1/fan-in.")] = 3.0,
    fading: Annotated[float, typer.Option(help="Share of the past forgotten at each observation, in [0, 1).")] = 1e-3,
    rows: Annotated[int | None, typer.Option(min=1, help="Stop after this many rows (default: all).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Learn a small network online on the embedded digits, predicting each image before learning it."""
    import numpy as np

    from natkal.data import digits

    if not prior_scale > 0 or not np.isfinite(prior_scale):
        raise typer.BadParameter(f"must be a positive number, got {prior_scale:g}", param_hint="--prior-scale")
    if not 0 <= fading < 1:
        raise typer.BadParameter(f"must be in [0, 1), got {fading:g}", param_hint="--fading")
    inputs, targets = (array[:rows] for array in digits())
    started = time.perf_counter()
    size, log_probs, guesses = _learn(inputs, targets, hidden, prior_scale, fading, quiet=as_json)
    seconds = time.perf_counter() - started
    baseline_log_probs, baseline_guesses = class_frequencies(targets, CLASSES)

    def scores(part: slice) -> dict[str, Any]:
        return {
            "rows": len(targets[part]),
            "log_loss": -float(log_probs[part].mean()),
            "accuracy": float((guesses == targets)[part].mean()),
            "baseline_log_loss": -float(baseline_log_probs[part].mean()),
            "baseline_accuracy": float((baseline_guesses == targets)[part].mean()),
        }

    edges = [round(share * len(targets) / 4) for share in range(5)]
    result = {
        "command": "learn",
        "stream": "digits",
        "network": [inputs.shape[1], hidden, CLASSES],
        "parameters": size,
        "prior_scale": prior_scale,
        "fading": fading,
        "seconds": round(seconds, 3),
        "quarters": [scores(slice(first, last)) for first, last in itertools.pairwise(edges) if last > first],
        "all": scores(slice(None)),
    }
    if as_json:
        print_json(result)
    else:
        _print(result)
    if not np.isfinite(result["all"]["log_loss"]):
        err.print("[red]The filter diverged:[/] its log loss is not finite. Try a smaller --prior-scale.")
        raise typer.Exit(1)


def _learn(
    inputs: "np.ndarray",
    targets: "np.ndarray",
    hidden: int,
    prior_scale: float,
    fading: float,
    *,
    quiet: bool,
) -> tuple[int, "np.ndarray", "np.ndarray"]:
    """One pass, test then train: parameter count, and for each row the log-probability of its label and the guess."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import natkal as nk
    from natkal.paper.dictionary import fan_in_prior

    family = nk.families.Categorical(CLASSES, minimal=False)
    params = nk.mlp_params(jax.random.key(0), (inputs.shape[1], hidden, CLASSES))
    model = nk.static_model(nk.mlp_apply, params, family)
    prior_cov = jax.tree.map(lambda variance: prior_scale * variance, fan_in_prior(params))
    learner = nk.online(model, prior_cov=prior_cov, curvature=nk.dense(), rates=nk.fading(fading))
    state = learner.init(params)
    scaled = jnp.asarray(inputs / 8 - 1)  # 0..16 to [-1, 1]: the range is known before any row is seen
    labels = jnp.asarray(targets, dtype=jnp.int32)
    log_probs, guesses = [], []
    total = 0.0
    with progress(len(targets), "rows", quiet=quiet) as report:
        started = time.perf_counter()
        for first in range(0, len(targets), BLOCK):
            state, info = nk.run(learner, state, scaled[first : first + BLOCK], labels[first : first + BLOCK])
            log_probs.append(np.asarray(info.log_prob))
            guesses.append(np.asarray(info.prediction.mean).argmax(axis=1))
            total -= float(log_probs[-1].sum())
            done = first + len(log_probs[-1])
            report(done, f"{done / (time.perf_counter() - started):,.0f} rows/s  log loss {total / done:.3f}")
    return model.size, np.concatenate(log_probs), np.concatenate(guesses)


def class_frequencies(targets: "np.ndarray", classes: int) -> tuple["np.ndarray", "np.ndarray"]:
    """The baseline, learned online too: labels predicted by their frequency so far, each class counted once before."""
    import numpy as np

    seen = np.eye(classes, dtype=int)[targets]
    counts = 1 + np.cumsum(seen, axis=0) - seen
    rows = np.arange(len(targets))
    return np.log(counts[rows, targets] / counts.sum(axis=1)), counts.argmax(axis=1)


def _print(result: dict[str, Any]) -> None:
    layers = "-".join(map(str, result["network"]))
    table = Table(title=f"Digits, one pass: a {layers} network against class frequencies", title_justify="left")
    table.add_column("rows", justify="right")
    for column in ("log loss", "accuracy", "baseline log loss", "baseline accuracy"):
        table.add_column(column, justify="right")
    first = 0
    for part in result["quarters"]:
        last = first + part["rows"]
        table.add_row(f"{first + 1:,} to {last:,}", *_cells(part))
        first = last
    table.add_section()
    table.add_row("all", *_cells(result["all"]), style="bold")
    out.print(table)
    out.print(
        f"{first:,} images seen once each, every one predicted before it was learned, by a Kalman filter on all "
        f"{result['parameters']:,} weights of a tanh network: prior variance {result['prior_scale']:g}/fan-in, "
        f"fading {result['fading']:g}, {result['seconds']:.1f} s."
    )


def _cells(part: dict[str, Any]) -> tuple[str, str, str, str]:
    return (
        f"{part['log_loss']:.3f}",
        f"{part['accuracy']:.1%}",
        f"{part['baseline_log_loss']:.3f}",
        f"{part['baseline_accuracy']:.1%}",
    )
