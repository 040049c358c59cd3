"""The small streams and models on which the questions are asked."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk
from benchmarks.streams.data import stream
from benchmarks.streams.laws import standardised
from natkal.typing import Array, Params

SEEDS = 5
ROWS = 1_000


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A stream under a model, once for each seed: its own start, and its own order of rows within a concept.

    `inputs` (seeds, n, d) and `targets` (seeds, n) are standardised over the whole stream: the questions are about
    learning, not about units.
    """

    stream: str
    model: str
    inputs: Array
    targets: Array
    sizes: tuple[int, ...]
    law: Any

    def params(self, seed: Array) -> Params:
        """The start of this seed: zero for a linear model, random weights for a network."""
        params = nk.mlp_params(jax.random.key(seed), self.sizes)
        return params if len(self.sizes) > 2 else jax.tree.map(jnp.zeros_like, params)

    def model_of(self, params: Params) -> Any:
        """The network under its law."""
        return nk.static_model(nk.mlp_apply, params, self.law)


class _Rows(NamedTuple):
    inputs: np.ndarray
    targets: np.ndarray
    law: Any
    outputs: int
    hidden: int
    concepts: int = 1


def _table(name: str, hidden: int) -> _Rows:
    found = stream(name)
    inputs, targets = found.inputs[:ROWS], found.targets[:ROWS]
    law: Any = found.family
    if found.kind == "count":
        law = nk.families.Poisson()
    if found.kind == "regression":
        targets = standardised(targets)
        law = nk.families.Gaussian(0.5)  # near the variance that the best linear fit leaves
    return _Rows(standardised(inputs), targets, law, found.sizes[-1], hidden)


def _digits() -> _Rows:
    """Digits averaged over 2 x 2 pixels."""
    whole = _table("digits", 8)
    pixels = stream("digits").inputs[:ROWS].reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
    return whole._replace(inputs=standardised(pixels))


def _drift() -> _Rows:
    """SEA, 1,000 rows on either side of its first drift."""
    found = stream("sea")
    middle = found.drifts[0]
    rows = slice(middle - ROWS, middle + ROWS)
    return _Rows(standardised(found.inputs[rows]), found.targets[rows], found.family, 1, 8, concepts=2)


STREAMS: dict[str, Callable[[], _Rows]] = {
    "digits 4x4": _digits,
    "image segments": lambda: _table("image segments", 8),
    "phishing": lambda: _table("phishing", 8),
    "breast cancer": lambda: _table("breast cancer", 5),
    "diabetes": lambda: _table("diabetes", 8),
    "solar flare": lambda: _table("solar flare", 5),
    "sea, drifting": _drift,
}
"""Classes, a real target, counts; six that stand still and one that drifts."""
MODELS = ("linear", "mlp")


def cases(streams: tuple[str, ...] = tuple(STREAMS), models: tuple[str, ...] = MODELS) -> list[Case]:
    """Every stream under every model."""
    found = []
    for name in streams:
        rows = STREAMS[name]()
        orders = np.stack([_order(len(rows.targets), rows.concepts, seed) for seed in range(SEEDS)])
        inputs, targets = jnp.asarray(rows.inputs[orders], jnp.float32), jnp.asarray(rows.targets[orders])
        for model in models:
            hidden = () if model == "linear" else (rows.hidden,)
            sizes = (rows.inputs.shape[1], *hidden, rows.outputs)
            found.append(Case(name, model, inputs, targets, sizes, rows.law))
    return found


def _order(count: int, concepts: int, seed: int) -> np.ndarray:
    """Rows in an order of this seed's own; those of a concept stay together."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(part) for part in np.array_split(np.arange(count), concepts)])
