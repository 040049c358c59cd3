"""The built-in models and streams of the certificate: every family, linear and with a hidden layer; recurrent cells."""

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.compiling.policy import run_once
from natkal.families import (
    Bernoulli,
    Binomial,
    Categorical,
    Exponential,
    Gamma,
    Gaussian,
    GaussianUnknownVariance,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Product,
)
from natkal.families.base import Family
from natkal.models import (
    RecurrentModel,
    StaticModel,
    cells,
    mlp_apply,
    recurrent_model,
    recurrent_network,
    sensitivity,
    static_model,
)
from natkal.paper.dictionary import fan_in_prior
from natkal.typing import Array, Params

INPUTS, HIDDEN, STEPS = 2, 3, 500
UNITS, RECURRENT_STEPS = 3, 300


class Case(NamedTuple):
    """A model, the stream to run it on, and the prior to start from: what `verify` takes."""

    name: str
    model: StaticModel | RecurrentModel
    inputs: Array
    targets: Array
    prior_cov: Params


def builtin_families() -> dict[str, Family]:
    """One of each family, by name."""
    return {
        "Gaussian": Gaussian(0.5),
        "Gaussian, 2-d": Gaussian(np.array([[1.0, 0.3], [0.3, 0.5]])),
        "Gaussian, unknown variance": GaussianUnknownVariance(),
        "Bernoulli": Bernoulli(),
        "Categorical": Categorical(3),
        "Binomial": Binomial(5),
        "Multinomial": Multinomial(4, 3),
        "Poisson": Poisson(),
        "NegativeBinomial": NegativeBinomial(3.0),
        "Exponential": Exponential(),
        "Gamma": Gamma(2.0),
        "Product": Product(Bernoulli(), Gaussian(1.0)),
    }


def builtin_cases() -> tuple[Case, ...]:
    """All built-in cases, each stream drawn from the family itself with its own fixed seed."""
    return (*static_cases(), *recurrent_cases())


def static_cases() -> tuple[Case, ...]:
    """Every family with a linear model and with a hidden layer.

    The linear categorical model puts out k-1 log-odds, the one with a hidden layer all k logits.
    """
    cases = []
    for seed, (name, family) in enumerate(builtin_families().items()):
        logits = family.k if isinstance(family, Categorical) else family.raw_dim
        cases.append(build_case(f"{name}, linear", family, (), outputs=family.raw_dim, seed=seed))
        cases.append(build_case(f"{name}, MLP", family, (HIDDEN,), outputs=logits, seed=seed))
    return tuple(cases)


def recurrent_cases() -> tuple[Case, ...]:
    """Gaussian, Bernoulli and categorical outputs under tanh, gated, linear and diagonal cells."""
    families = builtin_families()
    shapes = {
        "tanh": cells.tanh(UNITS),
        "GRU": cells.gru(UNITS),
        "linear": cells.linear(UNITS),
        "LRU": cells.lru(UNITS, memory=UNITS),
        "RTU": cells.rtu(UNITS, memory=UNITS),
    }
    exact = {"LRU": sensitivity.diagonal(), "RTU": sensitivity.diagonal()}
    chosen = {
        "Gaussian": ("tanh", "GRU", "linear", "LRU"),
        "Bernoulli": ("tanh", "GRU", "linear", "RTU"),
        "Categorical": ("tanh", "GRU", "linear", "LRU"),
    }
    return tuple(
        build_recurrent_case(
            f"{name}, {shape} cell",
            families[name],
            shapes[shape],
            seed=seed,
            sensitivity=exact.get(shape, sensitivity.rtrl()),
        )
        for seed, name in enumerate(chosen)
        for shape in chosen[name]
    )


def build_recurrent_case(
    name: str,
    family: Family,
    cell: cells.Cell,
    *,
    seed: int,
    steps: int = RECURRENT_STEPS,
    **options: Any,
) -> Case:
    """A recurrent network under `family` and a stream from another network like it: inputs uniform in [-1, 1].

    `options` are those of `recurrent_model`, for the network that learns.
    """

    def draw(key: Array) -> tuple[Params, Array, Array]:
        start_key, truth_key, input_key, target_key = jax.random.split(key, 4)
        networks = (recurrent_network(key, cell, INPUTS, family) for key in (start_key, truth_key))
        start, truth = (_contracting(network) for network in networks)
        inputs = jax.random.uniform(input_key, (steps, INPUTS), minval=-1, maxval=1)

        def follow(state: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            u, key = row
            moved = truth.system.step(truth.params, state, u)
            return moved, family.sample(key, family.link(truth.raw(truth.params, moved, u)))

        rest = jnp.zeros(truth.system.state_size)
        targets = jax.lax.scan(follow, rest, (inputs, jax.random.split(target_key, steps)))[1]
        return start.params, inputs, targets

    params, inputs, targets = run_once(draw, jax.random.key(seed))
    prior_cov = jax.tree.map(lambda variance: 0.1 * variance, fan_in_prior(params))
    model = recurrent_model(cell, cell.readout, params, cell.state(), family, **options)
    return Case(name=name, model=model, inputs=inputs, targets=targets, prior_cov=prior_cov)


def _contracting(network: RecurrentModel) -> RecurrentModel:
    """The network with half its recurrent weights: stable even where nothing saturates, and soon past its start."""
    halved = {"recurrent": 0.5}
    weights = {name: halved.get(name, 1.0) * leaf for name, leaf in network.params["cell"].items()}
    return dataclasses.replace(network, params={**network.params, "cell": weights})


def build_case(
    name: str, family: Family, hidden: tuple[int, ...], *, outputs: int, seed: int, steps: int = STEPS
) -> Case:
    """A network under `family` and a stream from another network like it: inputs uniform in [-1, 1], y ~ family."""
    rng = np.random.default_rng(seed)
    sizes = (INPUTS, *hidden, outputs)
    start, truth = _network(rng, sizes), _network(rng, sizes)
    inputs = jnp.asarray(rng.uniform(-1, 1, (steps, INPUTS)))

    def draw(key: Array, inputs: Array, truth: Params) -> Array:
        naturals = jax.vmap(lambda u: family.link(mlp_apply(truth, u)))(inputs)
        return jax.vmap(family.sample)(jax.random.split(key, steps), naturals)

    targets = run_once(draw, jax.random.key(seed), inputs, truth)
    # A tenth of the fan-in prior: wide enough to learn, narrow enough for one observation not to overshoot.
    prior_cov = jax.tree.map(lambda variance: 0.1 * variance, fan_in_prior(start))
    return Case(
        name=name,
        model=static_model(mlp_apply, start, family),
        inputs=inputs,
        targets=targets,
        prior_cov=prior_cov,
    )


def _network(rng: np.random.Generator, sizes: tuple[int, ...]) -> Params:
    """Weights and biases N(0, 1/fan-in), in the layout of `mlp_apply`."""
    return [
        {
            "weight": jnp.asarray(rng.normal(0, fan_in**-0.5, (fan_in, fan_out))),
            "bias": jnp.asarray(rng.normal(0, fan_in**-0.5, fan_out)),
        }
        for fan_in, fan_out in itertools.pairwise(sizes)
    ]
