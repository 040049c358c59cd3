"""The bandit of a table: rewards by id, growth, resume to the bit, and the same answer through every door."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from natkal.cli import app
from natkal.decisions.bandit_learner import BanditLearner
from natkal.decisions.bandit_options import BanditOptions
from natkal.decisions.table_bandit import TableBandit
from natkal.errors import CheckpointError, StreamError

OPTIONS = BanditOptions(reward="binary", model="linear")


def visits(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [{"age": float(rng.integers(20, 60)), "city": str(rng.choice(["Oslo", "Rome"]))} for _ in range(count)]


def pays(row: dict[str, Any], arm: str) -> int:
    return int((arm == "a") == (row["city"] == "Oslo"))


@pytest.fixture(scope="module")
def trained() -> TableBandit:
    bandit = TableBandit(["a", "b"], OPTIONS)
    for number, row in enumerate(visits(60)):
        decision = bandit.decide(row, id=str(number))
        bandit.reward(str(number), pays(row, decision["arm"]))
    return bandit


def test_it_learns_which_arm_pays_and_late_rewards_find_their_decision(trained: TableBandit) -> None:
    rows = visits(40, seed=1)
    decisions = trained.decide_many(rows, [f"late {number}" for number in range(40)])
    right = [pays(row, decision["arm"]) for row, decision in zip(rows, decisions, strict=True)]
    assert np.mean(right) > 0.9
    trained.reward_many([(f"late {number}", right[number]) for number in reversed(range(40))])
    with pytest.raises(StreamError, match="no decision with this id"):
        trained.reward("late 3", 1)
    trained.decide(rows[0], id="x")
    with pytest.raises(StreamError, match="must be 0 or 1"):
        trained.reward("x", 0.5)


def test_saved_and_loaded_it_decides_the_same_and_a_damaged_file_is_refused(
    trained: TableBandit, tmp_path: Path
) -> None:
    trained.decide(visits(1)[0], id="held")
    path = trained.save(tmp_path / "bandit.nk")
    again = TableBandit.load(path)
    again.reward("held", 1)
    trained.reward("held", 1)
    assert again.decide_many(visits(4, seed=2)) == trained.decide_many(visits(4, seed=2))
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CheckpointError, match="damaged"):
        TableBandit.load(path)


def test_arms_and_columns_that_come_later_are_taken_on() -> None:
    bandit = TableBandit(["a", "b"], OPTIONS)
    row = visits(1)[0]
    bandit.decide(row, id="1")
    bandit.reward("1", 1)
    before = bandit.decide(row)["expected"]
    after = bandit.decide({**row, "weather": 3.0}, arms=["c"])
    assert after["arm"] == "c"
    assert after["probability"] == pytest.approx(1.0)
    for arm in ("a", "b"):  # what was learned stays, and a column whose scale is not known yet says nothing
        assert after["expected"][arm] == pytest.approx(before[arm], rel=1e-9)


def test_the_command_resumes_where_it_stood_and_values_a_log(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    lines = []
    for row in visits(48, seed=3):
        arm = str(rng.choice(["a", "b"]))
        lines.append({**row, "arm": arm, "reward": pays(row, arm), "probability": 0.5})
    for number, row in enumerate(visits(8, seed=4)):
        lines.append({**row, "id": f"v{number}"})
        if number % 2:
            lines.append({"id": f"v{number - 1}", "reward": 1})
    lines.append({"id": "nobody", "reward": 1})
    text = [json.dumps(line) + "\n" for line in lines]
    whole, first, rest = tmp_path / "whole.jsonl", tmp_path / "first.jsonl", tmp_path / "rest.jsonl"
    whole.write_text("".join(text))
    first.write_text("".join(text[:53]))
    rest.write_text("".join(text[53:]))

    def run(*words: Any) -> dict[str, Any]:
        result = CliRunner().invoke(app, ["decide", *map(str, words), "--json", "--model", "linear", "--arms", "a,b"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    once = run(whole, "--run", tmp_path / "one", "--out", tmp_path / "one.jsonl")
    run(first, "--run", tmp_path / "two", "--out", tmp_path / "two.jsonl")
    twice = run(first, rest, "--run", tmp_path / "two", "--out", tmp_path / "two.jsonl", "--resume")
    assert once["rows"] == {"read": 61, "decided": 8, "rewarded": 4, "logged": 48, "rejected": 1, "skipped": 0}
    assert twice["rows"] == once["rows"]
    texts = [path.read_text() for path in (tmp_path / "one.jsonl", tmp_path / "two.jsonl")]
    without = [[{**json.loads(line), "line": 0} for line in text.splitlines()] for text in texts]
    assert without[0] == without[1]
    assert once["off_policy"] == twice["off_policy"]
    assert once["off_policy"]["doubly_robust"]["value"] > once["off_policy"]["logged"]["value"]


def test_the_estimator_decides_as_the_table_does() -> None:
    pytest.importorskip("sklearn")
    import pickle

    from sklearn.base import clone

    from natkal.sklearn import KalmanBandit

    rng = np.random.default_rng(0)
    X, arm = rng.normal(size=(60, 2)), rng.choice(["no", "yes"], 60)
    reward = ((X[:, 0] > 0) == (arm == "yes")).astype(float)
    estimator = clone(KalmanBandit(model="linear")).partial_fit(X, arm, reward)
    learner = BanditLearner(OPTIONS, [True, True], ["no", "yes"])
    learner.learn(X, (arm == "yes").astype(int), reward)
    np.testing.assert_array_equal(estimator.expected_rewards(X[:5]), learner.expected(X[:5]))
    copied = pickle.loads(pickle.dumps(estimator))
    arms, chances = copied.decide(X[:5])
    told = learner.decide(X[:5])
    np.testing.assert_array_equal(arms, np.array(["no", "yes"])[told.arms])
    np.testing.assert_array_equal(chances, told.probabilities)
    assert np.mean(estimator.predict(X) == np.where(X[:, 0] > 0, "yes", "no")) > 0.8
    with pytest.raises(ValueError, match="'maybe' is none of the arms"):
        estimator.partial_fit(X[:1], ["maybe"], [1.0])


def test_decisions_do_not_depend_on_what_came_with_them() -> None:
    """Bit for bit: all at once, or in parts of any size, also a log that is valued."""
    rng = np.random.default_rng(5)
    X, arms = rng.normal(size=(40, 2)), rng.integers(3, size=40)
    rewards = np.where(rng.random(40) < 0.1, np.nan, (rng.random(40) < 0.3 * (arms + 1)).astype(float))
    told, valued = [], []
    for cuts in ([0, 40], [0, 1, 7, 24, 40]):
        learner = BanditLearner(OPTIONS, [True, True], ["a", "b", "c"])
        parts = [slice(*cut) for cut in itertools.pairwise(cuts)]
        valued.append(
            np.concatenate([np.stack(learner.replay(X[part], arms[part], rewards[part])) for part in parts], 1)
        )
        told.append([learner.decide(X[part]) for part in parts])
    np.testing.assert_array_equal(*valued)
    for whole, pieces in zip(told[0][0], zip(*told[1], strict=True), strict=True):
        np.testing.assert_array_equal(whole, np.concatenate(pieces))
