"""The record of decisions: what it keeps is what the estimates of the whole log say; and the page about it."""

import math
import re
from pathlib import Path

import numpy as np

from natkal.decisions.off_policy import off_policy
from natkal.report.decisions import decisions_page
from natkal.runs.decision_record import MOST_WINDOWS, DecisionRecord
from natkal.runs.decisions import DecisionSession
from natkal.settings.decide import DecisionSettings

ARMS = ["a", "b", "c"]


def made_up(count: int, seed: int = 0) -> tuple[list[str], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    law = rng.dirichlet(np.ones(3), size=count)
    arms = np.array([rng.choice(3, p=row) for row in law])
    rewards = (rng.random(count) < 0.2 + 0.2 * arms).astype(float)
    return [ARMS[arm] for arm in arms], law[np.arange(count), arms], rewards


def test_values_of_simple_policies_are_those_of_the_whole_log() -> None:
    arms, chances, rewards = made_up(5000)
    record = DecisionRecord()
    for first in range(0, 5000, 700):
        part = slice(first, first + 700)
        record.logged(arms[part], chances[part], rewards[part], np.ones(5000)[part])
    values = record.values()
    uniform = off_policy(rewards, chances, np.full(5000, 1 / 3)).self_normalised
    np.testing.assert_allclose(values["uniform choice"], uniform, rtol=1e-10)
    for name in ARMS:
        alone = off_policy(rewards, chances, np.array(arms) == name).self_normalised
        np.testing.assert_allclose(record.alone(name), alone, rtol=1e-10)
    assert "always c" in values  # it pays most
    assert values["as decided"].value == rewards.mean()
    assert abs(values["uniform choice"].value - 0.4) < 4 * values["uniform choice"].error


def test_windows_are_joined_and_nothing_is_lost() -> None:
    arms, chances, rewards = made_up(5000, seed=1)
    whole, parts = DecisionRecord(), DecisionRecord()
    whole.logged(arms, chances, rewards, np.ones(5000))
    for first in range(5000):
        part = slice(first, first + 1)
        parts.logged(arms[part], chances[part], rewards[part], np.ones(1))
    assert len(whole.windows) <= MOST_WINDOWS
    assert whole.decisions == 5000
    assert [window.chosen for window in whole.windows] == [window.chosen for window in parts.windows]
    assert sum(window.paid for window in whole.windows) == rewards.sum()
    series = whole.series()
    assert series["decision"][-1] == 5000
    np.testing.assert_allclose(np.sum([series[f"arm {name}"] for name in ARMS], axis=0), 1.0)
    assert DecisionRecord.from_json(whole.to_json()) == whole


def test_the_page_shows_what_the_record_says() -> None:
    session = DecisionSession(Path("run"), DecisionSettings(arms=tuple(ARMS)))
    assert "0 decisions" in decisions_page(session)
    arms, chances, rewards = made_up(300)
    session.own.decided(arms, np.where(np.arange(300) == 7, math.nan, chances))
    session.own.rewarded(arms, chances, rewards)
    text = decisions_page(session)
    for title in ("Reward as it learned", "Arms over time", "Propensities", "Reward a decision, with 95% intervals"):
        assert re.search(rf'aria-label="{title}" data-marks="[1-9]', text)
    assert f"{rewards.mean():.4g}" in text
    assert "nan" not in re.sub(r"<style>.*</style>", "", text, flags=re.S)
