"""Which learner a front end gets: the one place that chooses."""

import dataclasses
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.curvature import blocks, dense
from natkal.engine import Learner, fading, online
from natkal.families import Family, Gaussian, Weighted
from natkal.integrations.laws import NUMBER, Law, SlotLaw
from natkal.learners import Bank, auto
from natkal.models import StaticModel, mlp_apply, mlp_params, static_model
from natkal.typing import Array, Float, Params

LEARNERS = {"single": 1, "auto": 6}
"""How many filters each has: a bank of more costs time in proportion, and gains little."""
DENSE_UP_TO = 2000
"""Parameters with a full covariance matrix; larger networks keep one for each neuron."""
NEVER = -1e9
"""Log-odds of a slot that has no class."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a machine is compiled for."""

    law: Law
    columns: int
    hidden: tuple[int, ...]
    standardize: bool
    full: bool
    """Whether the covariance of all parameters is kept, or one for each neuron."""
    filters: int = 1
    """One, with the prior scale and the fading it was given, or a bank of them."""

    @property
    def family(self) -> Family:
        """What each row tells; a bank learns the noise of a number beside its filters, one filter as a parameter."""
        return Weighted(Gaussian(1.0) if self.law == NUMBER and not self.learns_noise else self.law.family)

    @property
    def learns_noise(self) -> bool:
        """Whether the noise is a parameter."""
        return self.law == NUMBER and self.filters == 1

    @property
    def outputs(self) -> int:
        """What the network puts out; a number's noise is a parameter of its own."""
        return 1 if self.law == NUMBER else self.law.family.raw_dim

    @property
    def size(self) -> int:
        """Parameters of the network."""
        return sum(
            (before + 1) * after for before, after in itertools.pairwise((self.columns, *self.hidden, self.outputs))
        )

    @property
    def row(self) -> int:
        """Numbers in a row: features, target, weight, how many classes are known."""
        return self.columns + 3


class Start(NamedTuple):
    """What differs between learners of one plan: data, not code.

    `features` of the columns and `outputs` of the outputs are in use; the others have variance 0, and stay what they
    are. `fan_in` is what the prior of the first weights is divided by.
    """

    features: Float[Array, ""]
    outputs: Float[Array, ""]
    fan_in: Float[Array, ""]
    prior_scale: Float[Array, ""]
    fading: Float[Array, ""]
    seed: Array


class Inputs(NamedTuple):
    """What the model sees of a row."""

    features: Float[Array, " d"]
    known: Float[Array, ""]


def make_plan(law: Law, features: int, hidden: tuple[int, ...], standardize: bool, learner: str = "single") -> Plan:
    """The plan for so many features; columns are rounded up to 5, 10 or a multiple of 20 where that costs little."""
    if learner not in LEARNERS:
        raise ValueError(f"learner: must be one of {', '.join(map(repr, LEARNERS))}, got {learner!r}")
    filters = LEARNERS[learner]
    exact = Plan(law, features, hidden, standardize, full=False, filters=filters)
    if exact.size > DENSE_UP_TO:
        return exact
    columns = next((size for size in (5, 10) if features <= size), -(-features // 20) * 20)
    return Plan(law, columns, hidden, standardize, full=True, filters=filters)


def make_learner(plan: Plan, rate: Float[Array, ""], prior_cov: Params | None = None) -> Learner | Bank:
    """The learner of a plan; `prior_cov` is asked for by `init` alone."""
    shapes = jax.eval_shape(lambda: _network(plan, jax.random.key(0)))
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape), shapes)
    model: StaticModel = static_model(_apply(plan), zeros, plan.family)
    # kept as one matrix, whose entries `growth` can lay into a larger one
    curvature = dense(kernel="immediate") if plan.full else blocks()
    if plan.filters == 1:
        return online(model, prior_cov=prior_cov, curvature=curvature, rates=fading(rate))
    # Rows are scaled already, by earlier rows alone.
    return auto(model, budget=plan.filters, standardize=False, curvature=curvature, prior_cov=prior_cov).bank


def first_params(plan: Plan, start: Start) -> Params:
    """Where learning starts: a linear model says nothing, a network has weights of variance 1/fan-in."""
    params = _network(plan, jax.random.key(start.seed))
    first = params["network"][0]
    filled = {**first, "weight": first["weight"] * jnp.sqrt(plan.columns / start.fan_in)}
    return {**params, "network": [filled, *params["network"][1:]]}


def prior_variances(plan: Plan, start: Start) -> Params:
    """`prior_scale`/fan-in for weights, `prior_scale` for biases, 1 for a noise's logarithm; 0 for what is not used."""
    params = jax.tree.map(lambda leaf: jnp.ones(leaf.shape), jax.eval_shape(lambda: _network(plan, jax.random.key(0))))
    layers = [
        {
            "weight": layer["weight"] * start.prior_scale / (start.fan_in if position == 0 else len(layer["weight"])),
            "bias": layer["bias"] * start.prior_scale,
        }
        for position, layer in enumerate(params["network"])
    ]
    first, last = layers[0]["weight"], layers[-1]
    layers[0]["weight"] = jnp.where(jnp.arange(len(first))[:, None] < start.features, first, 0.0)
    used = jnp.arange(len(last["bias"])) < start.outputs
    layers[-1] = {name: jnp.where(used if leaf.ndim == 1 else used[None, :], leaf, 0.0) for name, leaf in last.items()}
    return {**params, "network": layers}


def _network(plan: Plan, key: Array) -> Params:
    layers = mlp_params(key, (plan.columns, *plan.hidden, plan.outputs))
    if not plan.hidden:
        layers = jax.tree.map(jnp.zeros_like, layers)
    return {"network": layers} | ({"log_noise": jnp.zeros(1)} if plan.learns_noise else {})


def _apply(plan: Plan):
    def apply(params: Params, inputs: Inputs) -> Array:
        outputs = mlp_apply(params["network"], inputs.features)
        if plan.learns_noise:
            return jnp.concatenate([outputs, params["log_noise"]])
        if isinstance(plan.law, SlotLaw):
            return jnp.where(jnp.arange(1, plan.law.slots) < inputs.known, outputs, NEVER)
        return outputs

    return apply
