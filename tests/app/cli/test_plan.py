"""`natkal plan` without timing: nothing of the network is allocated."""

import json

import pytest
from typer.testing import CliRunner

from natkal.cli import app


def plan(*arguments: str):
    return CliRunner().invoke(app, ["plan", "--no-time", *arguments])


def test_json_holds_every_curvature_and_what_it_costs():
    answer = plan("20,10,3", "--memory", "1GB", "--json")
    assert answer.exit_code == 0, answer.output
    result = json.loads(answer.stdout)
    assert result["parameters"] == 20 * 10 + 10 + 10 * 3 + 3
    assert (result["memory"], result["recommended"]) == (10**9, "dense")
    costs = {entry["name"]: entry for entry in result["curvatures"]}
    itemsize = costs["diagonal()"]["state_bytes"] // result["parameters"]
    assert costs["dense"]["state_bytes"] == itemsize * (result["parameters"] ** 2 + 1)  # P, and a variance
    assert all(entry["fits"] and entry["seconds"] is None for entry in costs.values())


def test_a_smaller_budget_gets_a_smaller_curvature():
    answer = plan("784,100,10", "--memory", "500MB", "--json")
    result = json.loads(answer.stdout)
    fits = {entry["name"]: entry["fits"] for entry in result["curvatures"]}
    assert not fits["dense"]
    assert fits[result["recommended"]]


def test_a_table_for_people_and_an_exit_code_where_nothing_fits():
    answer = plan("784,100,10", "--memory", "4GB")
    assert answer.exit_code == 0
    assert "79,510" in answer.stdout
    assert plan("784,100,10", "--memory", "1KB").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["784"], "sizes like 784,100,10, got '784'"),
        (["784,x,10"], "got '784,x,10'"),
        (["784,0,10"], "got '784,0,10'"),
        (["784,1"], "got '784,1'"),
        (["4,3", "--memory", "lots"], "like 4GB or 500MB, got 'lots'"),
        (["4,3", "--memory", "xGB"], "got 'xGB'"),
    ],
)
def test_complaints_are_clear(arguments, complaint):
    answer = plan(*arguments)
    assert answer.exit_code == 2
    assert complaint in " ".join(answer.stderr.replace("│", " ").split())
    assert answer.stdout == ""
