"""Which bandit a table gets: the one place that chooses its learner, for every door that decides."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from natkal.banks.auto import SHARE, expected_spread
from natkal.banks.bank import Bank
from natkal.banks.group import Group
from natkal.banks.scaled import Scaled
from natkal.banks.units.standardise import Standardiser
from natkal.curvature import blocks
from natkal.decisions import Bandit, Policy, bandit, epsilon_greedy, greedy, thompson, ucb
from natkal.decisions.contextual import curvature_for
from natkal.engine import Learner, fading, online
from natkal.errors import StreamError
from natkal.families import Bernoulli, Family, Gaussian, Poisson
from natkal.laws import laws_of_rewards
from natkal.models import static_model
from natkal.models.arms import heads_model
from natkal.tables.learner.architectures import Layers, Shape
from natkal.tables.learner.maps import Cosines

REWARDS: dict[str, Family] = {"binary": Bernoulli(), "number": Gaussian(1.0), "count": Poisson()}
"""The family of each kind of reward."""
COSINES = ((6.0, 0.0), (60.0, 0.0))
FILTERS = {"linear": ((6.0, 0.0), (1.0, 0.0), (6.0, 2e-3)), "waves": COSINES, "near waves": COSINES}
NETWORK = ((20.0, 0.0), (60.0, 0.0), (20.0, 1e-3))
"""(prior scale times 1/fan-in, fading) of the filters; with inputs of deviation 1 an output has about that variance."""
HIDDEN = (64,)
NEARNESS = (1.0, 2.0)
"""Of the cosines: their kernel is that of a smooth function, or of one that changes within half the distance."""
WAVES_UP_TO = 32
"""Numbers of a context up to which there are cosines: their filters have a block of (40 + numbers)^2 for each arm."""
POLICIES = ("thompson", "ucb", "epsilon-greedy", "greedy")


@dataclasses.dataclass(frozen=True)
class BanditOptions:
    """What a user may say about a bandit; all of it decides the result, so all of it is in the checkpoint.

    `reward` is binary, number or count. `policy` is thompson, ucb, epsilon-greedy or greedy, `policy_value` the width
    of ucb, the share of epsilon-greedy or the floor of thompson. `model` is auto (linear filters, filters on
    cosines of random projections, and a network), linear, or mlp:64,64.
    """

    reward: str = "number"
    policy: str = "thompson"
    policy_value: float | None = None
    model: str = "auto"
    seed: int = 0


def check_bandit_options(options: BanditOptions) -> None:
    """Refuse what is none of the choices, in the user's words."""
    if options.reward not in REWARDS:
        raise StreamError(f"reward: must be one of {', '.join(REWARDS)}, got {options.reward!r}")
    if options.policy not in POLICIES:
        raise StreamError(f"policy: must be one of {', '.join(POLICIES)}, got {options.policy!r}")
    if options.policy_value is not None and options.policy == "greedy":
        raise StreamError(f"policy: {options.policy} has no value, got {options.policy_value:g}")
    architectures(options, 1)
    make_policy(options)


def make_policy(options: BanditOptions) -> Policy:
    """The policy that the options spell."""
    value = options.policy_value
    try:
        match options.policy:
            case "ucb":
                return ucb(1.0 if value is None else value)
            case "epsilon-greedy":
                return epsilon_greedy(0.1 if value is None else value)
            case "greedy":
                return greedy()
            case _:
                return thompson(floor=0.0 if value is None else value)
    except ValueError as error:
        raise StreamError(f"policy: {error}") from error


def architectures(options: BanditOptions, fan_in: int) -> tuple[Layers, ...]:
    """The architectures that run on contexts that began with `fan_in` numbers."""
    model = options.model
    if model == "auto":
        nearness = NEARNESS if fan_in <= WAVES_UP_TO else ()
        waves = (Layers((), map=Cosines(fan_in, seed=options.seed, nearness=near)) for near in nearness)
        return (Layers(()), *waves, Layers(HIDDEN))
    if model == "linear":
        return (Layers(()),)
    kind, _, sizes = model.partition(":")
    if kind == "mlp" and sizes and all(size.isdigit() and int(size) > 0 for size in sizes.split(",")):
        return (Layers(tuple(int(size) for size in sizes.split(","))),)
    raise StreamError(f"model: must be auto, linear or mlp:64,64, got {model!r}")


@functools.lru_cache(maxsize=64)
def make_bandit(options: BanditOptions, scaled: tuple[bool, ...], fan_in: int, arms: int) -> Bandit:
    """The bandit for contexts of these numbers and so many arms; the same object for the same question."""
    family = REWARDS[options.reward]
    shape = Shape(columns=len(scaled), scaled=scaled, past=0, fan_in=fan_in)
    groups = tuple(_group(options.seed, shape, layers, family, arms) for layers in architectures(options, fan_in))
    units = Standardiser(
        example={"context": np.zeros(len(scaled)), "arm": np.zeros((), np.int32)},
        outputs=family,
        scaled={"context": np.array(scaled), "arm": False},
        spread=expected_spread(family),
        fixed_units=True,
    )
    learner = Scaled(bank=Bank(groups=groups, laws=laws_of_rewards(family), share=SHARE), units=units)
    return bandit(learner, arms=arms, policy=make_policy(options))


def _group(seed: int, shape: Shape, layers: Layers, family: Family, arms: int) -> Group:
    params: Any = layers.params(seed, shape, arms)
    prior = layers.prior(params, shape)
    model = heads_model(static_model(layers.apply, params, family), family, arms)
    # a reward moves the weights of its own arm alone, so the posterior of a linear model has a block for each arm
    curvature = curvature_for(model.size) if layers.hidden else blocks(by="neuron")
    settings = NETWORK if layers.hidden else FILTERS[layers.name]

    def make(value: dict[str, Any]) -> Learner:
        variances = jax.tree.map(lambda variance: variance * value["prior"], prior)
        return online(model, prior_cov=variances, rates=fading(value["fading"]), curvature=curvature)

    numbers = np.asarray(settings, float)
    return Group(
        make=make,
        values={"prior": numbers[:, 0], "fading": numbers[:, 1]},
        names=tuple(f"{layers.name} prior {scale:g} fading {rate:g}" for scale, rate in settings),
    )
