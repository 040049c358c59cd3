"""Contextual bandits on a learner's posterior: pure functions on a pytree state, as every learner is."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal.banks.auto import SHARE, filters, in_noise_units
from natkal.banks.bank import Bank
from natkal.compiling.policy import jit_method
from natkal.curvature import Curvature, dense, kronecker
from natkal.decisions import decision_weights, draw_scale, wild_rewards
from natkal.decisions.calibrated import Calibrated
from natkal.decisions.policies import Choice, Knowledge, Policy, thompson
from natkal.engine.joint import ArmsLearner, JointLaw
from natkal.engine.protocol import Learner
from natkal.families.base import Family
from natkal.laws import laws_of_rewards
from natkal.models import Model
from natkal.models.arms import DescribedArmsModel, heads_model
from natkal.typing import Array, Bool, Float, Int, Params

SETTINGS = ((1.0, 0.0), (1.0, 1e-3))
"""Prior scale, in units of the calibrated one, and fading of each filter of the default learner."""
NARROW = (0.16, 0.0)
"""One more filter of a large model: under the calibrated prior a deep network may soon stop learning."""
DENSE_UP_TO = 400
"""Parameters of a model that get a full covariance; a larger one gets Kronecker factors."""


class BanditState(NamedTuple):
    """The learner's state, the weights of the scales of a draw, how large rewards are, and what members count."""

    learner: Any
    log_scales: Float[Array, " s"]
    sizes: wild_rewards.Sizes
    members: decision_weights.DecisionWeights


class Decision(NamedTuple):
    """The arm that was chosen and all that a log of decisions needs.

    `probability` is that with which the policy chooses this arm in this state and context; `exact`: it was computed,
    not estimated by draws. `expected` has the expected reward of every arm. Of a slate, `arm` and `probability` have an
    entry for each position, the probability being that of the arm given those before it.
    """

    arm: Int[Array, "*slate"]
    probability: Float[Array, "*slate"]
    exact: Bool[Array, "*slate"]
    expected: Float[Array, " n"]


@dataclasses.dataclass(frozen=True, eq=False)
class Bandit:
    """Decides, and learns from what the decision paid; build it with `bandit`."""

    learner: Any
    arms: int | None
    policy: Policy
    slate: int

    @property
    def outputs(self) -> Family:
        """The law of a reward."""
        return self.learner.outputs

    def __repr__(self) -> str:
        arms = "described arms" if self.arms is None else f"{self.arms} arms"
        return f"Bandit({arms}, {self.policy}, {self.outputs})"

    @property
    def scales(self) -> tuple[float, ...]:
        """The scales of a draw that are weighed; one where the policy has it fixed."""
        fixed = getattr(self.policy, "scale", 1.0)
        return draw_scale.SCALES if fixed is None else (fixed,)

    @property
    def weighs_by_error(self) -> bool:
        """Whether members count by the squared errors of their means, and not by likelihood."""
        return self.outputs.support == "real" and len(self.scales) > 1

    def init(self, params: Params | None = None, key: Array | None = None) -> BanditState:
        """The state before any reward."""
        state = self.learner.init(params, key)
        dtype = next(leaf.dtype for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating))
        log_scales = draw_scale.start(self.scales, dtype)
        members = decision_weights.start(self.learner.joint_sizes, dtype)
        return BanditState(state, log_scales, wild_rewards.start(dtype), members)

    def act(self, state: BanditState, context: Any, key: Array, available: Any = None) -> Decision:
        """Choose an arm, or a slate of different ones; `available` (n booleans) leaves arms out. Changes nothing."""
        return self._act(state, context, key, available)

    def learn(self, state: BanditState, context: Any, arm: Any, reward: Any) -> BanditState:
        """The state after a reward of this arm in this context, now or later; NaN is missing and says nothing.

        Of a slate, `arm` and `reward` have an entry for each position.
        """
        return self._learn(state, context, arm, reward)

    @jit_method
    def expected(self, state: BanditState, context: Any) -> Float[Array, " n"]:
        """The expected reward of every arm."""
        law = self._law(state, self._every_arm(context))
        return jnp.exp(law.log_weights) @ law.mean

    def probabilities(self, state: BanditState, context: Any, key: Array, available: Any = None) -> Float[Array, " n"]:
        """The probability with which the policy chooses each arm here; exact or estimated as in a `Decision`."""
        return self._probabilities(state, context, key, available)

    @jit_method
    def _probabilities(self, state: BanditState, context: Any, key: Array, available: Any) -> Float[Array, " n"]:
        law = self._law(state, self._every_arm(context))
        return self.policy.probabilities(self._known(state, law, _free(law, available)), key)

    @jit_method
    def _act(self, state: BanditState, context: Any, key: Array, available: Any) -> Decision:
        law = self._law(state, self._every_arm(context))
        free = _free(law, available)
        expected = jnp.exp(law.log_weights) @ law.mean
        if self.slate == 1:
            return _decision(self._choose(state, law, free, key), expected)

        def position(free: Bool[Array, " n"], own_key: Array) -> tuple[Array, Any]:
            choice = self._choose(state, law, free, own_key)
            return free.at[choice.arm].set(False), choice

        _, chosen = jax.lax.scan(position, free, jax.random.split(key, self.slate))
        return _decision(chosen, expected)

    def _choose(self, state: BanditState, law: JointLaw, free: Bool[Array, " n"], key: Array) -> Choice:
        return self.policy.choose(self._known(state, law, free), key)

    def _known(self, state: BanditState, law: JointLaw, free: Bool[Array, " n"]) -> Knowledge:
        scales = jnp.asarray(self.scales, law.location.dtype)
        return Knowledge(self.outputs, law, free, scales, state.log_scales, state.sizes)

    @jit_method
    def _learn(self, state: BanditState, context: Any, arm: Any, reward: Any) -> BanditState:
        if self.slate == 1:
            return self._learn_one(state, context, arm, reward)

        def position(state: BanditState, told: Any) -> tuple[BanditState, None]:
            return self._learn_one(state, context, *told), None

        return jax.lax.scan(position, state, (jnp.asarray(arm), jnp.asarray(reward)))[0]

    def _learn_one(self, state: BanditState, context: Any, arm: Any, reward: Any) -> BanditState:
        inputs = self._one_arm(context, arm)
        log_scales, members = state.log_scales, state.members
        sizes, reward = wild_rewards.sift(state.sizes, jnp.asarray(reward, log_scales.dtype))
        if len(self.scales) > 1:
            law = self._law(state, {**inputs, "arm": jax.tree.map(_stacked, inputs["arm"])})
            if self.weighs_by_error:
                members = decision_weights.after_reward(members, law, reward)
            scales = jnp.asarray(self.scales, law.location.dtype)
            value = reward.astype(law.location.dtype)
            log_scales = draw_scale.after_reward(self.outputs, law, scales, log_scales, value)
        learner, _ = self.learner.step(state.learner, inputs, reward)
        return BanditState(learner, log_scales, sizes, members)

    def _law(self, state: BanditState, inputs: Any) -> JointLaw:
        """The joint law of the arms; where members count by the errors of their means, draws are around the mean of all
        members, with the covariance of one.
        """
        law = self.learner.joint(state.learner, inputs)
        if not self.weighs_by_error:
            return law
        log_weights = state.members.log_weights
        shared = jnp.broadcast_to(jnp.exp(log_weights) @ law.location, law.location.shape)
        return law._replace(log_weights=log_weights, location=shared)

    def _every_arm(self, context: Any) -> dict[str, Any]:
        if self.arms is not None:
            return {"context": context, "arm": jnp.arange(self.arms)}
        shared = {name: value for name, value in context.items() if name != "arms"}
        return {**shared, "arm": context["arms"]}

    def _one_arm(self, context: Any, arm: Any) -> dict[str, Any]:
        if self.arms is not None:
            return {"context": context, "arm": jnp.asarray(arm, jnp.int32)}
        shared = {name: value for name, value in context.items() if name != "arms"}
        return {**shared, "arm": jax.tree.map(lambda leaf: jnp.asarray(leaf)[arm], context["arms"])}


def bandit(
    model: Model | ArmsLearner,
    *,
    arms: int | None = None,
    policy: Policy | None = None,
    slate: int = 1,
    learner: Callable[[Model], Learner] | None = None,
) -> Bandit:
    """A contextual bandit: `act` chooses an arm for a context, `learn` learns from the reward of that arm.

    With `arms` K, the model has K outputs, one for each arm, and a context is what the model takes. Without it, arms
    are described by features and may differ in number from call to call: a context is `{"shared": .., "arms": ..}`
    with the features of the arms along the first axis, and the model takes `{"shared": .., "arm": ..}`. The family of
    the model is that of a reward.

    `policy` is `nk.thompson()` unless given; `slate` is the number of different arms that are chosen at once.
    `learner` makes a learner from the model of rewards, such as `lambda model: nk.online(model, prior_cov=1.0)`.
    Unless given it is a bank that forgets at several rates, whose prior is calibrated on the first context. A learner
    that is already one of rewards can take the model's place.

    >>> import jax, jax.numpy as jnp, natkal as nk
    >>> model = nk.static_model(lambda w, u: w @ u, jnp.zeros((2, 3)), nk.families.Bernoulli())
    >>> bandit = nk.bandit(model, arms=2)
    >>> state, context = bandit.init(), jnp.array([1.0, 0.5, -1.0])
    >>> decision = bandit.act(state, context, jax.random.key(0))
    >>> round(float(decision.probability), 3), bool(decision.exact)  # nothing is known yet
    (0.5, True)
    >>> state = bandit.learn(state, context, decision.arm, 1)
    """
    policy = thompson() if policy is None else policy
    if not isinstance(policy, Policy):
        raise ValueError(f"policy: {policy!r} is none; use nk.thompson(), nk.ucb(c), nk.epsilon_greedy(e), nk.greedy()")
    if arms is not None and arms < 1:
        raise ValueError(f"arms: must be at least 1, got {arms}")
    if not 1 <= slate <= (slate if arms is None else arms):
        raise ValueError(f"slate: must lie in 1..{arms} different arms, got {slate}")
    if isinstance(model, ArmsLearner) and isinstance(model, Learner):
        made: Any = model
    else:
        assert isinstance(model, Model)
        family = model.outputs
        rewards: Any = DescribedArmsModel(model) if arms is None else heads_model(model, family, arms)
        made = default_learner(rewards) if learner is None else learner(rewards)
        if not isinstance(made, ArmsLearner):
            raise ValueError(f"learner: {type(made).__name__} cannot be asked for several arms at once (`joint`)")
    family = made.outputs
    if family.event_shape != () or (family.support == "classes" and family.raw_dim > 1):
        raise ValueError(f"model: a reward is one number, and {family} is a law of something else")
    return Bandit(learner=made, arms=arms, policy=policy, slate=slate)


def default_learner(model: Model) -> Calibrated:
    """Filters that differ in fading, mixed by likelihood, with a prior that the first context calibrates."""
    inner = in_noise_units(model)
    settings = SETTINGS if model.size <= DENSE_UP_TO else (*SETTINGS, NARROW)
    group = filters(inner, curvature_for(model.size), settings)
    return Calibrated(Bank(groups=(group,), laws=laws_of_rewards(model.outputs), share=SHARE))


def curvature_for(size: int) -> Curvature:
    """A full covariance for a small model, Kronecker factors for a larger one."""
    return dense(kernel="immediate") if size <= DENSE_UP_TO else kronecker()


def _decision(choice: Choice, expected: Float[Array, " n"]) -> Decision:
    return Decision(arm=choice.arm, probability=choice.probability, exact=choice.exact, expected=expected)


def _free(law: JointLaw, available: Any) -> Bool[Array, " n"]:
    """Which arms there are; all of them unless told."""
    return jnp.ones(law.location.shape[1], bool) if available is None else jnp.asarray(available, bool)


def _stacked(leaf: Any) -> Array:
    return jnp.asarray(leaf)[None]
