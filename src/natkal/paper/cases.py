"""The built-in models and streams of the certificate: every family, linear and with a hidden layer."""

from typing import NamedTuple

import jax
import numpy as np

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
from natkal.models import StaticModel, mlp_apply, mlp_params, static_model
from natkal.paper.compiling import run_once
from natkal.paper.dictionary import fan_in_prior
from natkal.typing import Array, Params

INPUTS, HIDDEN, STEPS = 2, 3, 500


class Case(NamedTuple):
    """A model, the stream to run it on, and the prior to start from: what `verify` takes."""

    name: str
    model: StaticModel
    inputs: Array
    targets: Array
    prior_cov: Params


def builtin_families() -> dict[str, Family]:
    """One of each family, by name; a second form of the categorical, with all k logits put out."""
    return {
        "Gaussian": Gaussian(0.5),
        "Gaussian, 2-d": Gaussian(np.array([[1.0, 0.3], [0.3, 0.5]])),
        "Gaussian, unknown variance": GaussianUnknownVariance(),
        "Bernoulli": Bernoulli(),
        "Categorical": Categorical(3),
        "Categorical, k logits": Categorical(3),
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
    return tuple(
        build_case(f"{name}, {shape}", family, hidden, outputs=3 if "logits" in name else family.raw_dim, seed=seed)
        for seed, (name, family) in enumerate(builtin_families().items())
        for shape, hidden in (("linear", ()), ("MLP", (HIDDEN,)))
    )


def build_case(
    name: str, family: Family, hidden: tuple[int, ...], *, outputs: int, seed: int, steps: int = STEPS
) -> Case:
    """A network under `family` and a stream from another network like it: inputs uniform in [-1, 1], y ~ family."""
    sizes = (INPUTS, *hidden, outputs)

    def draw(key: Array) -> tuple[Params, Array, Array]:
        start_key, truth_key, input_key, target_key = jax.random.split(key, 4)
        start, truth = mlp_params(start_key, sizes), mlp_params(truth_key, sizes)
        inputs = jax.random.uniform(input_key, (steps, INPUTS), minval=-1, maxval=1)
        naturals = jax.vmap(lambda u: family.link(mlp_apply(truth, u)))(inputs)
        return start, inputs, jax.vmap(family.sample)(jax.random.split(target_key, steps), naturals)

    start, inputs, targets = run_once(draw, jax.random.key(seed))
    # A tenth of the fan-in prior: wide enough to learn, narrow enough for one observation not to overshoot.
    prior_cov = jax.tree.map(lambda variance: 0.1 * variance, fan_in_prior(start))
    return Case(
        name=name,
        model=static_model(mlp_apply, start, family),
        inputs=inputs,
        targets=targets,
        prior_cov=prior_cov,
    )
