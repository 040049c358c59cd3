"""What the learning benchmark rests on: its rivals do what their names say, its scores can be checked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.learning import NAMES, PARTS, contest, rivals, tables
from benchmarks.learning.ours import Ours
from benchmarks.streams.scores import Forecast, scores

from benchmarks import optimisers
from tests.benchmarks.made_up import made_up


@pytest.mark.parametrize("name", ["SGD", "RMSprop", "AdamW"])
def test_rules_are_those_of_optax(name, rtol) -> None:
    optax = pytest.importorskip("optax")
    rival = rivals.RIVALS[name]
    setting = {"rate": 0.03, "momentum": 0.9, "decay": 0.99, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1}
    theirs = {
        "SGD": optax.sgd(0.03, momentum=0.9),
        "RMSprop": optax.rmsprop(0.03, decay=0.99, eps=1e-8),
        "AdamW": optax.adamw(0.03, b1=0.9, b2=0.99, weight_decay=0.1),
    }[name]
    slope = jax.grad(lambda theta: jnp.sum(theta**4) + theta[0] * theta[1])
    theta = other = jnp.array([1.0, -2.0, 0.5])
    memory = optimisers.Memory(jnp.zeros(3), jnp.zeros(3), jnp.zeros(()), jax.random.key(0))
    state = theirs.init(other)
    for _ in range(5):
        theta, memory = rival.rule(setting, theta, memory._replace(steps=memory.steps + 1), slope)
        change, state = theirs.update(slope(other), state, other)
        other = other + change
    np.testing.assert_allclose(theta, other, rtol=100 * rtol)


@pytest.mark.slow
def test_ivon_finds_the_curvature_of_a_quadratic() -> None:
    """On l = a x^2 / 2 its Hessian estimate is unbiased for a, and its mean goes to the minimum."""
    curvatures = jnp.array([0.5, 2.0])
    setting = {"rate": 0.1, "beta1": 0.9, "beta2": 0.99, "h0": 1.0, "rows": 10.0}
    memory = optimisers.Memory(jnp.zeros(2), jnp.zeros(2), jnp.zeros(()), jax.random.key(1))

    def step(carry, _):
        theta, memory = carry
        moved = optimisers.ivon(setting, theta, memory._replace(steps=memory.steps + 1), lambda x: curvatures * x)
        return moved, moved[1].second

    (theta, _), seen = jax.lax.scan(step, (jnp.array([1.0, -1.0]), memory), None, length=3000)
    np.testing.assert_allclose(seen[500:].mean(axis=0), curvatures, rtol=0.15)
    assert float(jnp.abs(theta).max()) < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "regression", "count"])
def test_a_rival_forecasts_a_law(kind, monkeypatch) -> None:
    """Log loss in the target's own units, from the whole grid; better than at a rate of nearly nothing."""
    monkeypatch.setattr(rivals, "_timed", lambda *rest: 0.0)
    found = made_up(kind)
    best, idle = (
        rivals.best(rivals.Rival(optimisers.sgd, {"rate": rates, "momentum": (0.0,)}), found)
        for rates in ((1e-9, 0.03), (1e-9,))
    )
    lost, idled = (scores(one.forecast, found) for one in (best, idle))
    assert lost["log_loss"] <= idled["log_loss"]
    if kind == "regression":
        assert 0.7 < lost["coverage_90"] <= 1


def test_tables_hold_every_row() -> None:
    assert set(NAMES) < set(PARTS)
    found = made_up("classification")
    row = {"stream": "digits", "rows": 60, "method": "nk.auto", "us_per_row": 1.0, "setting": "defaults"}
    row |= scores(Forecast(log_prob=np.zeros(60), probs=np.full((60, 3), 1 / 3)), found)
    promised = {"excess": 0.0, "bound": 0.1, "holds": True, "reseeded": 0}
    bank = {"shared": promised, "unshared": promised}
    river = {**row, "method": "river", "log_loss": -1.0}
    results = {"digits": {"rows": [row, river], "bank": bank, "units": {"relative_change": 0.0}}}
    (_, rows, columns), (_, held, _) = tables(results)
    assert [one["method"] for one in rows] == ["river", "nk.auto"]
    assert set(columns) <= set(rows[0])
    assert held[0]["bounds_hold"]


def test_a_promise_is_checked_against_the_best_expert() -> None:
    experts = np.log(np.array([[0.5, 0.1], [0.5, 0.1], [0.2, 0.1], [0.5, 0.1]]))
    mixed = np.log(np.mean(np.exp(experts.sum(axis=0))))
    bank = Ours(Forecast(log_prob=np.full(4, mixed / 4)), 0.0, experts, bound=np.log(2) / 4, reseeded=0)
    found = contest.promise(bank)
    assert found["holds"]
    np.testing.assert_allclose(found["excess"], (experts[:, 0].sum() - mixed) / 4)
    assert not contest.promise(bank._replace(forecast=Forecast(log_prob=np.full(4, mixed / 4 - 0.1))))["holds"]
