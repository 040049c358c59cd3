"""Members stop and come back: by trials, whose odds are those of a Bayes mixture of two."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal.banks.mixing import mix
from natkal.banks.selection import KEPT, REVIEW, TRIAL_SHARE, Selection, next_decision
from natkal.banks.state import BankState

pytestmark = pytest.mark.float64
SIZES = (6, 6)
MEMBERS, LAWS = sum(SIZES), 2


def follow(losses: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray], BankState]:
    """Who runs and who has weight after each review, where each member loses so much in each row under all laws."""
    selection = Selection()
    start = BankState((), (), jnp.full((MEMBERS, LAWS), -np.log(MEMBERS * LAWS)), 0.0, 0.0, 0, 0, None)  # pyright: ignore
    state = start._replace(selection=selection.init(SIZES, jnp.zeros(()).dtype))

    @jax.jit
    def step(state: BankState, told: jax.Array) -> BankState:
        told = jnp.broadcast_to(-told[:, None], (MEMBERS, LAWS))
        runs = jnp.concatenate([own.mask() for own in state.selection.running])
        among = jnp.broadcast_to((runs & ~state.selection.trial)[:, None], told.shape)
        log_prob, after = mix(state.log_weights, told, 1e-3, among)
        observed = jnp.ones((), bool)
        learned = selection.follow(state._replace(log_weights=after), state.log_weights, told, log_prob, observed)
        return selection.decide(learned, SIZES)

    ran, weighed, due = [], [], next_decision(0)
    for count, row in enumerate(losses, 1):
        state = step(state, jnp.asarray(row))
        if count == due:
            ran.append(np.concatenate([np.asarray(own.mask()) for own in state.selection.running]))
            weighed.append(np.isfinite(np.asarray(state.log_weights)[:, 0]))
            due = next_decision(count)
    return ran, weighed, state


def test_nobody_is_away_for_longer_than_a_review_for_each_member() -> None:
    """Members that always lose are tried in turn, one at a time, and never have weight."""
    rows = 26 * REVIEW
    losses = np.broadcast_to(1.0 + 0.1 * np.arange(MEMBERS), (rows, MEMBERS))
    ran, weighed, state = follow(losses)
    late = [one for one, due in zip(ran, range(len(ran)), strict=True) if due > 12]
    assert all(one.sum() == KEPT + 1 for one in late)
    assert all((one == (np.arange(MEMBERS) < KEPT)).all() for one in weighed[-8:])
    assert np.any(ran[-(MEMBERS - KEPT) :], axis=0).all()
    assert np.exp(state.log_weights).sum() == pytest.approx(1)


def test_a_member_that_becomes_the_best_comes_back_with_the_weight_of_its_odds() -> None:
    """It was stopped long ago; from some row on it loses less, and no drift of the bank's loss tells."""
    rows, change = 30 * REVIEW, 12 * REVIEW
    losses = np.array(np.broadcast_to(1.0 + 0.1 * np.arange(MEMBERS), (rows, MEMBERS)))
    losses[change:, 9] = 0.9
    _, weighed, state = follow(losses)
    at = [place for place, one in enumerate(weighed) if one[9] and place > 12]
    assert at, "it never came back"
    assert at[0] <= 2 + 12 + MEMBERS - KEPT + 1
    assert weighed[-1][9]
    assert np.exp(state.log_weights)[9].sum() > 0.9


def test_the_odds_of_a_trial_are_those_of_a_bayes_mixture_of_two() -> None:
    """Fixed share between the bank and the member, by `mix`."""
    rng = np.random.default_rng(0)
    selection = Selection()
    own = selection.init((2,), jnp.zeros(()).dtype)._replace(trial=jnp.array([False, True]))
    state = BankState((), (), jnp.log(jnp.array([[1.0], [0.0]])), 0.0, 0.0, 0, 0, own)  # pyright: ignore
    two = jnp.log(jnp.array([0.5, 0.5]))
    step = jax.jit(selection.follow)
    for told in -rng.exponential(size=(200, 2)):
        state = step(state, state.log_weights, jnp.asarray(told)[:, None], jnp.asarray(told[0]), jnp.ones((), bool))
        _, two = mix(two, jnp.asarray(told), TRIAL_SHARE)
    np.testing.assert_allclose(state.selection.odds[1], two[1] - two[0], rtol=1e-9)
