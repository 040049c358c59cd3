"""Bandits: the law of a decision against closed forms and naive oracles; every kind through one registry."""

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import natkal as nk
from natkal.decisions.best_arm import best_of_two, estimated, estimated_of_all
from natkal.engine.joint import JointLaw
from natkal.models.arms import heads_model

WIDTH, ARMS = 3, 3
LEVEL = 1e-3
"""The level of each statistical test: how often it would fail, over seeds, although the claim is true."""
BERNOULLI, POISSON, GAUSSIAN = nk.families.Bernoulli(), nk.families.Poisson(), nk.families.Gaussian(0.5)
CONTEXT = jnp.array([1.0, -0.5, 0.3])
DESCRIBED = {"shared": CONTEXT, "arms": jnp.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])}


def heads(family: Any, arms: int = ARMS) -> Any:
    return nk.static_model(lambda w, u: w @ u, jnp.zeros((arms, WIDTH)), family)


def described(family: Any) -> Any:
    def apply(w: Any, inputs: Any) -> Any:
        return w @ jnp.concatenate([inputs["shared"], inputs["arm"]])

    return nk.static_model(apply, jnp.zeros(WIDTH + 2), family)


@dataclasses.dataclass(frozen=True)
class Entry:
    name: str
    make: Any
    context: Any = None
    slate: int = 1

    @property
    def bandit(self) -> Any:
        return _made(self.name)


ONLINE = lambda model: nk.online(model, prior_cov=1.0)  # noqa: E731
ENTRIES = [
    Entry("default bernoulli", lambda: nk.bandit(heads(BERNOULLI), arms=ARMS)),
    Entry("default gaussian", lambda: nk.bandit(heads(GAUSSIAN), arms=ARMS)),
    Entry("online poisson, ucb", lambda: nk.bandit(heads(POISSON), arms=ARMS, policy=nk.ucb(1.0), learner=ONLINE)),
    Entry(
        "auto, greedy",
        lambda: nk.bandit(
            heads(GAUSSIAN),
            arms=ARMS,
            policy=nk.greedy(),
            learner=lambda model: nk.auto(model, members=2, inputs={"context": np.zeros(WIDTH), "arm": np.int32(0)}),
        ),
    ),
    Entry(
        "described, epsilon",
        lambda: nk.bandit(described(BERNOULLI), policy=nk.epsilon_greedy(0.3), learner=ONLINE),
        DESCRIBED,
    ),
    Entry("slate", lambda: nk.bandit(heads(BERNOULLI), arms=ARMS, slate=2, learner=ONLINE), slate=2),
]
SLOW = {"default gaussian", "auto, greedy", "online poisson, ucb"}
"""Entries whose claims a quicker one checks too."""
BANDITS = [
    pytest.param(entry, id=entry.name, marks=[pytest.mark.slow] if entry.name in SLOW else []) for entry in ENTRIES
]


@cache
def _made(name: str) -> Any:
    return next(entry for entry in ENTRIES if entry.name == name).make()


def context_of(entry: Entry) -> Any:
    return CONTEXT if entry.context is None else entry.context


def after(entry: Entry) -> Any:
    bandit, state = entry.bandit, entry.bandit.init()
    for turn in range(3):
        arm = (turn + jnp.arange(entry.slate)) % ARMS if entry.slate > 1 else turn
        state = bandit.learn(state, context_of(entry), arm, jnp.ones(entry.slate) if entry.slate > 1 else 1.0)
    return state


@pytest.mark.parametrize("entry", BANDITS)
def test_decisions_are_lawful_and_a_missing_reward_says_nothing(entry: Entry) -> None:
    bandit, context, state = entry.bandit, context_of(entry), after(entry)
    decision = bandit.act(state, context, jax.random.key(0))
    assert np.all((decision.arm >= 0) & (decision.arm < ARMS))
    assert np.all((decision.probability > 0) & (decision.probability <= 1 + 1e-9))
    assert decision.expected.shape == (ARMS,)
    if entry.slate > 1:
        assert len(set(np.asarray(decision.arm).tolist())) == entry.slate
    missing = jnp.full(decision.arm.shape, jnp.nan)
    silent = bandit.learn(state, context, decision.arm, missing)
    np.testing.assert_allclose(bandit.expected(silent, context), decision.expected, rtol=1e-6)
    reward = 1.0 if bandit.outputs.support == "classes" else 3.0
    told = bandit.learn(state, context, decision.arm, jnp.full(decision.arm.shape, reward))
    assert jax.tree.structure(told) == jax.tree.structure(state)
    assert not np.allclose(bandit.expected(told, context), decision.expected)


@pytest.mark.parametrize("entry", [entry for entry in BANDITS if entry.id == "slate"])
def test_under_jit_and_scan_the_same(entry: Entry) -> None:
    bandit, context = entry.bandit, context_of(entry)
    keys = jax.random.split(jax.random.key(3), 4)

    def turn(state: Any, key: Any) -> Any:
        decision = bandit.act(state, context, key)
        reward = (decision.arm == 0).astype(float)
        return bandit.learn(state, context, decision.arm, reward), decision.arm

    scanned, arms = jax.jit(lambda state: jax.lax.scan(turn, state, keys))(after(entry))
    state, by_hand = after(entry), []
    for key in keys:
        state, arm = turn(state, key)
        by_hand.append(arm)
    np.testing.assert_array_equal(arms, np.stack(by_hand))
    np.testing.assert_allclose(bandit.expected(scanned, context), bandit.expected(state, context), rtol=1e-6)


def test_unavailable_arms_are_never_chosen() -> None:
    bandit = ENTRIES[0].bandit
    free = jnp.array([False, True, True])
    keys = jax.random.split(jax.random.key(0), 64)
    act = jax.jit(jax.vmap(lambda key: bandit.act(after(ENTRIES[0]), CONTEXT, key, free)))
    found = act(keys)
    assert set(np.asarray(found.arm).tolist()) == {1, 2}
    # the two probabilities are those of one question, and add up to 1 up to the error of 64 paths
    one, two = (float(found.probability[found.arm == arm].mean()) for arm in (1, 2))
    assert one + two == pytest.approx(1, abs=0.02)


def posterior(rng: np.random.Generator, rows: int, arms: int) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """A linear Gaussian bandit after some rewards, and its posterior by the normal equations in NumPy."""
    bandit = nk.bandit(heads(GAUSSIAN, arms), arms=arms, policy=nk.thompson(scale=1.0), learner=ONLINE)
    state = bandit.init()
    precision = np.stack([np.eye(WIDTH)] * arms)
    shift = np.zeros((arms, WIDTH))
    for row in range(rows):
        context, arm, reward = rng.normal(size=WIDTH), row % arms, rng.normal()
        state = bandit.learn(state, jnp.asarray(context), arm, reward)
        precision[arm] += np.outer(context, context) / 0.5
        shift[arm] += context * reward / 0.5
    covs = np.linalg.inv(precision)
    means = np.einsum("aij,aj->ai", covs, shift)
    return bandit, state, means @ np.asarray(CONTEXT), np.einsum("i,aij,j->a", CONTEXT, covs, CONTEXT)


@pytest.mark.float64
def test_thompson_on_two_gaussian_arms_is_exact() -> None:
    """P(arm 0) = Phi(d / sd) by the normal equations; frequencies agree by a binomial test at LEVEL."""
    bandit, state, mean, variance = posterior(np.random.default_rng(1), 8, 2)
    exact = stats.norm.cdf((mean[0] - mean[1]) / np.sqrt(variance.sum()))
    keys = jax.random.split(jax.random.key(0), 4000)
    found = jax.jit(jax.vmap(lambda key: bandit.act(state, CONTEXT, key)))(keys)
    assert bool(np.all(found.exact))
    np.testing.assert_allclose(found.probability, np.where(found.arm == 0, exact, 1 - exact), rtol=1e-9)
    assert stats.binomtest(int(np.sum(found.arm == 0)), 4000, exact).pvalue > LEVEL


@pytest.mark.float64
def test_thompson_on_four_gaussian_arms_has_the_analytic_frequencies() -> None:
    """P(arm a) = int phi_a prod Phi_b (independent heads), by quadrature; a chi-squared test at LEVEL."""
    bandit, state, mean, variance = posterior(np.random.default_rng(2), 12, 4)
    grid = np.linspace(-12, 12, 20001)
    deviation = np.sqrt(variance)
    below = stats.norm.cdf((grid[:, None] - mean) / deviation)
    density = stats.norm.pdf(grid[:, None], mean, deviation)
    others = np.stack([np.delete(below, arm, axis=1).prod(axis=1) for arm in range(4)], axis=1)
    analytic = np.trapezoid(density * others, grid, axis=0)
    keys = jax.random.split(jax.random.key(0), 4000)
    found = jax.jit(jax.vmap(lambda key: bandit.act(state, CONTEXT, key)))(keys)
    counts = np.bincount(found.arm, minlength=4)
    assert stats.chisquare(counts, 4000 * analytic / analytic.sum()).pvalue > LEVEL
    # the estimate of the probability is unbiased: its mean over calls is the analytic one, within 5 standard errors
    for arm in range(4):
        own = np.asarray(found.probability[found.arm == arm])
        assert abs(own.mean() - analytic[arm]) < 5 * own.std() / np.sqrt(len(own)) + 1e-12


@pytest.mark.float64
def test_probabilities_of_correlated_arms_against_draws() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(2, 4, 4))
    law = JointLaw(
        log_weights=jnp.log(jnp.array([0.3, 0.7])),
        location=jnp.asarray(rng.normal(size=(2, 4))),
        cov=jnp.asarray(root @ root.transpose(0, 2, 1)),
        mean=jnp.zeros((2, 4)),
        noise=jnp.ones((2, 4)),
    )
    scales, log_scales = jnp.array([0.5, 1.0]), jnp.log(jnp.array([0.4, 0.6]))
    draws = 200_000
    member, scale = rng.choice(2, draws, p=[0.3, 0.7]), np.array([0.5, 1.0])[rng.choice(2, draws, p=[0.4, 0.6])]
    noise = np.einsum("dij,dj->di", root[member], rng.normal(size=(draws, 4))) * scale[:, None]
    best = np.argmax(np.asarray(law.location)[member] + noise, axis=1)
    naive = np.bincount(best, minlength=4) / draws
    free = jnp.ones(4, bool)
    ask = jax.jit(lambda arm, key: estimated(law, scales, log_scales, free, arm, key, 20_000))
    found = [float(ask(arm, jax.random.key(arm))) for arm in range(4)]
    np.testing.assert_allclose(found, naive, atol=0.01)
    assert sum(found) == pytest.approx(1, abs=0.01)
    together = estimated_of_all(law, scales, log_scales, free, jax.random.key(0), 20_000)
    np.testing.assert_allclose(together, naive, atol=0.01)
    # arms that are not there, and a covariance of rank one
    some, flat = jnp.array([True, False, True, True]), jnp.ones((2, 4, 4)) * law.cov[:, :1, :1]
    alone = estimated_of_all(law._replace(cov=flat), scales, log_scales, some, jax.random.key(1), 20_000)
    certain = np.zeros(4)
    for weight, location in zip((0.3, 0.7), np.asarray(law.location), strict=True):
        certain[np.argmax(np.where(some, location, -np.inf))] += weight
    np.testing.assert_allclose(alone, certain, atol=1e-6)
    pair = law._replace(location=law.location[:, :2], cov=law.cov[:, :2, :2])
    two = np.mean(np.argmax((np.asarray(law.location)[member] + noise)[:, :2], axis=1) == 1)
    assert float(best_of_two(pair, scales, log_scales, 1)) == pytest.approx(two, abs=0.01)


@pytest.mark.float64
@pytest.mark.parametrize(
    "curvature",
    [pytest.param(nk.dense(), id="dense"), pytest.param(nk.kronecker(), id="kronecker", marks=pytest.mark.slow)],
)
def test_joint_law_and_inflation_against_the_covariance_in_full(curvature: Any) -> None:
    """A P A' with the Jacobian of all heads by JAX, P in full; `inflate` multiplies P."""
    params = nk.mlp_params(jax.random.key(0), (WIDTH, 4, ARMS))
    inner = nk.static_model(nk.mlp_apply, params, BERNOULLI)
    learner = nk.online(heads_model(inner, BERNOULLI, ARMS), prior_cov=nk.fan_in_prior(params), curvature=curvature)
    state = learner.init()
    for arm in range(ARMS):
        state, _ = learner.step(state, {"context": CONTEXT, "arm": jnp.asarray(arm)}, jnp.asarray(1.0))
    law = learner.joint(state, {"context": CONTEXT, "arm": jnp.arange(ARMS)})
    flat, unravel = jax.flatten_util.ravel_pytree(state.params)
    jacobian = jax.jacobian(lambda theta: nk.mlp_apply(unravel(theta), CONTEXT))(flat)
    cov = learner.covariance(state)
    np.testing.assert_allclose(law.location[0], nk.mlp_apply(state.params, CONTEXT), rtol=1e-10)
    np.testing.assert_allclose(law.cov[0], jacobian @ cov @ jacobian.T, rtol=1e-8, atol=1e-12)
    wider = learner.covariance(learner.inflate(state, jnp.asarray(3.0)))
    np.testing.assert_allclose(wider, 3 * cov, rtol=1e-8, atol=1e-12)


def test_epsilon_greedy_frequencies() -> None:
    entry = next(entry for entry in ENTRIES if entry.name == "described, epsilon")
    state = after(entry)
    keys = jax.random.split(jax.random.key(0), 4000)
    found = jax.jit(jax.vmap(lambda key: entry.bandit.act(state, DESCRIBED, key)))(keys)
    best = int(np.argmax(found.expected[0]))
    chance = np.where(np.arange(ARMS) == best, 0.7 + 0.1, 0.1)
    np.testing.assert_allclose(found.probability, chance[np.asarray(found.arm)], rtol=1e-6)
    assert stats.chisquare(np.bincount(found.arm, minlength=ARMS), 4000 * chance).pvalue > LEVEL


def test_ties_of_an_upper_bound_are_equally_likely() -> None:
    bandit = nk.bandit(heads(BERNOULLI), arms=ARMS, policy=nk.ucb(1.0), learner=ONLINE)
    decision = bandit.act(bandit.init(), CONTEXT, jax.random.key(0))
    assert float(decision.probability) == pytest.approx(1 / 3)


@pytest.mark.float64
def test_the_rewards_find_the_scale_of_a_draw() -> None:
    """A prior 25 times too wide: the scale 1/5 or one beside it is the most likely one."""
    rng = np.random.default_rng(0)
    bandit = nk.bandit(
        heads(nk.families.Gaussian(0.01), 1), arms=1, learner=lambda model: nk.online(model, prior_cov=25.0)
    )
    weights = np.zeros(len(bandit.scales))
    for _ in range(60):  # new worlds, of which the first two rewards tell how wide the prior is
        state, truth = bandit.init(), rng.normal(size=WIDTH)
        state = state._replace(log_scales=jnp.asarray(weights - np.logaddexp.reduce(weights)))
        for _ in range(2):
            context = rng.normal(size=WIDTH)
            state = bandit.learn(state, jnp.asarray(context), 0, truth @ context + 0.1 * rng.normal())
        weights = np.asarray(state.log_scales)
    assert bandit.scales[int(np.argmax(weights))] in (0.12, 0.25)


def test_refusals_in_the_users_words() -> None:
    with pytest.raises(ValueError, match=r"slate: must lie in 1\.\.3"):
        nk.bandit(heads(BERNOULLI), arms=3, slate=4)
    with pytest.raises(ValueError, match="a reward is one number"):
        nk.bandit(nk.static_model(lambda w, u: w @ u, jnp.zeros((4, 3)), nk.families.Categorical(3)), arms=2)
    with pytest.raises(ValueError, match="scale: must be positive"):
        nk.thompson(scale=0.0)
    with pytest.raises(ValueError, match="policy"):
        nk.bandit(heads(BERNOULLI), arms=3, policy="greedy")  # pyright: ignore[reportArgumentType]


@pytest.mark.float64
def test_a_run_of_easy_rewards_leaves_the_noise_of_the_rewards_before_it() -> None:
    """Against the conjugate rule with a memory of 1,000 rewards: n <- d n + 1, sum <- d sum + e^2 / (1 + v)."""
    arms, rng = 2, np.random.default_rng(0)
    bandit = nk.bandit(heads(nk.families.Gaussian(1.0), arms), arms=arms)
    rewards = np.concatenate([rng.normal(size=200), np.zeros(100)])

    def turn(state: Any, reward: Any) -> Any:
        law = bandit.learner.joint(state.learner, {"context": CONTEXT, "arm": jnp.arange(1)})
        return bandit.learn(state, CONTEXT, 0, reward), (law.location[:, 0], law.cov[:, 0, 0], law.noise[:, 0])

    _, (location, cov, noise) = jax.jit(lambda state: jax.lax.scan(turn, state, jnp.asarray(rewards)))(bandit.init())
    heard, squares = 1.0, np.ones(noise.shape[1])
    for row, reward in enumerate(rewards):
        np.testing.assert_allclose(noise[row], squares / heard, rtol=1e-6)
        told = np.square(reward - location[row]) / (1 + cov[row] / noise[row])
        squares = 0.999 * squares + np.minimum(told, 25 * squares / heard)
        heard = 0.999 * heard + 1
    assert np.all(noise[-1] > 0.5 * noise[200])


def test_draws_of_numbers_are_around_the_mean_of_all_members() -> None:
    """With rewards of numbers the law of each member has the mixture's mean and its own covariance; else its own."""
    for family, shared in ((GAUSSIAN, True), (BERNOULLI, False)):
        bandit = nk.bandit(heads(family), arms=ARMS)
        state = bandit.init()
        for reward, arm in ((1, 0), (0, 1), (1, 2), (1, 1)):
            state = bandit.learn(state, CONTEXT, arm, reward)
        inputs = {"context": CONTEXT, "arm": jnp.arange(ARMS)}
        own, used = bandit.learner.joint(state.learner, inputs), bandit._law(state, inputs)
        mixed = np.exp(used.log_weights) @ own.location
        np.testing.assert_allclose(
            used.location, np.broadcast_to(mixed, own.location.shape) if shared else own.location
        )
        np.testing.assert_array_equal(used.cov, own.cov)
        assert not np.allclose(own.location[0], own.location[1])
