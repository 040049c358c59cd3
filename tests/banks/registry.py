"""Every kind of learner once, on small shapes. A new one enters `LEARNERS` and inherits every check."""

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natkal as nk
from natkal.banks import Bank, Selection
from natkal.banks.auto import filters
from natkal.banks.tiles import CELLS, PLAIN, Tiled, random_grids, with_cells
from natkal.laws import laws_for
from tests.banks.third_party import RunningMean

ROWS, WIDTH = 24, 3  # `nk.auto` looks at the first 16 real targets together
families = nk.families


@dataclasses.dataclass(frozen=True)
class Entry:
    """A learner with a stream for it. `kind` is that of its targets; `refuses` names the methods that it refuses."""

    name: str
    make: Callable[[], Any]
    kind: str = "real"
    outputs: int = 1
    memory: bool = False
    refuses: tuple[str, ...] = ()

    @property
    def learner(self) -> Any:
        """The one learner of this entry, so that it is compiled once."""
        return _made(self.name)

    @property
    def stream(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets; the third target is missing where it can be."""
        rng = np.random.default_rng(7)
        inputs = rng.normal(size=(ROWS, WIDTH))
        signal = inputs[:, 0] - 0.5 * inputs[:, 1]
        if self.kind == "classes":
            return inputs, (signal > 0).astype(int) + (signal > 1) * (self.outputs > 2)
        if self.kind == "count":
            return inputs, rng.poisson(np.exp(0.5 * signal))
        targets = 3 + signal + 0.3 * rng.normal(size=ROWS)
        targets[2] = np.nan
        return inputs, targets if self.outputs == 1 else np.stack([targets, 1 - targets], axis=1)

    @property
    def past(self) -> Any:
        """The state after the first half of the stream."""
        return _after_half(self.name)


def linear(family: Any, outputs: int | None = None) -> Any:
    shape = (WIDTH,) if outputs is None else (outputs, WIDTH)
    return nk.static_model(lambda w, u: w @ u, jnp.full(shape, 0.1), family)


def network(family: Any, outputs: int = 1) -> Any:
    return nk.static_model(nk.mlp_apply, nk.mlp_params(jax.random.key(0), (WIDTH, 2, outputs)), family)


def recurrent(family: Any) -> Any:
    return nk.recurrent_network(jax.random.key(0), nk.cells.gru(2), WIDTH, family)


def selecting() -> Bank:
    group = filters(linear(families.Bernoulli()), nk.dense(), [(1.0, 0.0), (10.0, 1e-2)])
    return Bank(groups=(group,), laws=laws_for(families.Bernoulli()), share=1e-3, selection=Selection())


def tiled() -> Tiled:
    params = {CELLS: jnp.zeros((3, 1)), PLAIN: jnp.zeros((WIDTH, 1))}
    model = nk.static_model(lambda p, u: u @ p[PLAIN] + jnp.sum(p[CELLS], axis=0), params, families.Gaussian(0.5))
    return Tiled(
        nk.online(model, curvature=with_cells(nk.dense())), random_grids(0, 3, WIDTH), lambda u: jnp.asarray(u), 1.0, 4
    )


GAUSSIAN, BERNOULLI, POISSON = families.Gaussian(0.5), families.Bernoulli(), families.Poisson()
THREE = families.Categorical(3, minimal=False)
ONE_OF_TWO_MODELS = ("sample", "covariance")

ENTRIES = [
    Entry("online dense", lambda: nk.online(linear(GAUSSIAN), rates=nk.fading(0.01))),
    Entry("online logistic", lambda: nk.online(linear(BERNOULLI), prior_weight=1.0, rates=nk.fading(0.01)), "classes"),
    Entry("online kronecker", lambda: nk.online(network(THREE, 3), curvature=nk.kronecker()), "classes", 3),
    Entry("online low rank", lambda: nk.online(network(THREE, 3), curvature=nk.low_rank(2)), "classes", 3),
    Entry(
        "online counts",
        lambda: nk.online(linear(POISSON), curvature=nk.diagonal(), rates=nk.learning_rate(lambda t: 1 / (t + 2))),
        "count",
    ),
    Entry(
        "online vector",
        lambda: nk.online(linear(families.Gaussian(np.eye(2)), 2), curvature=nk.square_root(), robust=nk.robust()),
        outputs=2,
    ),
    Entry(
        "online sampled",
        lambda: nk.online(linear(families.Categorical(3), 3), fisher=nk.sampled(1), curvature=nk.diagonal()),
        "classes",
        3,
    ),
    Entry("online recurrent", lambda: nk.online(recurrent(GAUSSIAN)), memory=True),
    Entry("tiled", tiled),
    Entry("averaged", lambda: nk.averaged(nk.online(linear(GAUSSIAN)), power=1.0)),
    Entry("ensemble", lambda: nk.ensemble(nk.online(linear(BERNOULLI)), 2), "classes"),
    Entry("bank", lambda: nk.bank([nk.online(linear_gaussian, prior_cov=cov) for cov in (0.1, 1.0)])),
    Entry(
        "bank of two models",
        lambda: nk.bank([nk.online(linear(GAUSSIAN)), nk.online(network(GAUSSIAN))]),
        refuses=(*ONE_OF_TWO_MODELS, "params"),
    ),
    Entry("bank that selects", selecting, "classes"),
    Entry("auto gaussian", lambda: nk.auto(linear(GAUSSIAN), members=2)),
    Entry("auto bernoulli", lambda: nk.auto(linear(BERNOULLI), members=2), "classes"),
    Entry("auto categorical", lambda: nk.auto(linear(families.Categorical(3), 3), members=2), "classes", 3),
    Entry("auto poisson", lambda: nk.auto(linear(POISSON), members=2), "count"),
    Entry("auto recurrent", lambda: nk.auto(recurrent(GAUSSIAN), members=2), memory=True),
    Entry("third party", RunningMean),
    Entry(
        "bank with a third party",
        lambda: nk.bank([RunningMean(), nk.online(linear(GAUSSIAN))]),
        refuses=(*ONE_OF_TWO_MODELS, "params"),
    ),
]
linear_gaussian = linear(GAUSSIAN)
SLOW = {
    "online low rank",
    "online counts",
    "online vector",
    "online sampled",
    "auto bernoulli",
    "auto categorical",
    "auto poisson",
    "auto recurrent",
}
"""Entries whose claims a quicker one of the same kind checks too."""
LEARNERS = [
    pytest.param(entry, id=entry.name, marks=[pytest.mark.slow] if entry.name in SLOW else []) for entry in ENTRIES
]


@cache
def _made(name: str) -> Any:
    return next(entry for entry in ENTRIES if entry.name == name).make()


@cache
def _after_half(name: str) -> Any:
    entry = next(entry for entry in ENTRIES if entry.name == name)
    inputs, targets = entry.stream
    return nk.run(entry.learner, entry.learner.init(), inputs[: ROWS // 2], targets[: ROWS // 2])[0]
