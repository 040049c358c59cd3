"""`natkal learn` end to end on a short prefix of the embedded stream."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from natkal.cli import app
from natkal.cli.learn import class_frequencies

SHORT = ["learn", "--rows", "130", "--hidden", "4"]


def test_json_is_one_object_and_nothing_else():
    answer = CliRunner().invoke(app, [*SHORT, "--json"])
    assert answer.exit_code == 0, answer.output
    assert answer.stderr == ""
    result = json.loads(answer.stdout)
    assert result["parameters"] == 64 * 4 + 4 + 4 * 10 + 10
    assert [part["rows"] for part in result["quarters"]] == [32, 33, 33, 32]
    weighted = sum(part["rows"] * part["log_loss"] for part in result["quarters"]) / 130
    assert result["all"]["log_loss"] == pytest.approx(weighted)
    assert result["all"]["log_loss"] < result["all"]["baseline_log_loss"]


def test_plain_lines_without_a_terminal():
    answer = CliRunner().invoke(app, SHORT)
    assert answer.exit_code == 0, answer.output
    assert "130 of 130 rows" in answer.stderr
    assert "log loss" in answer.stdout
    assert "\x1b" not in answer.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--prior-scale", "0"], "must be a positive number, got 0"),
        (["--prior-scale", "nan"], "must be a positive number, got nan"),
        (["--fading", "1"], "must be in [0, 1), got 1"),
        (["--hidden", "0"], "--hidden"),
    ],
)
def test_bad_settings_are_usage_errors(arguments, complaint):
    answer = CliRunner().invoke(app, ["learn", *arguments])
    assert answer.exit_code == 2
    assert complaint in answer.stderr
    assert answer.stdout == ""


def test_baseline_counts_only_what_came_before():
    log_probs, guesses = class_frequencies(np.array([2, 2, 0]), classes=3)
    np.testing.assert_allclose(log_probs, np.log([1 / 3, 2 / 4, 1 / 5]), rtol=1e-12)
    assert guesses.tolist() == [0, 2, 2]
