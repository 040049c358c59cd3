"""`natkal verify` end to end: a built-in case, a user's model, a failing claim, and what it says of bad input."""

import json

import pytest
from typer.testing import CliRunner

from natkal.cli import app
from natkal.paper import cases
from tests.conftest import FLOAT64

PRECISION = ["--dtype", "float64"] if FLOAT64 else ["--dtype", "float32", "--tolerance", "0.1"]

MODULE = """
import jax
import jax.numpy as jnp
import natkal as nk

def good():
    inputs = jax.random.normal(jax.random.key(0), (30, 2))
    model = nk.static_model(lambda w, u: w @ u, jnp.zeros(2), nk.families.Bernoulli())
    return model, inputs, (inputs[:, 0] > 0).astype(int)

def impossible_label():
    model, inputs, targets = good()
    return model, inputs, targets + 3

def wrong_width():
    model, inputs, targets = good()
    return model, inputs[:, :1], targets

def pair():
    return good()[:2]

def not_a_model():
    return "model", 1, 2

def no_rows():
    return good()[0], 1.0, 1.0

def broken():
    raise KeyError("weights")

number = 3
"""


def run(*arguments):
    return CliRunner().invoke(app, ["verify", *arguments])


@pytest.fixture
def users_module(tmp_path, monkeypatch):
    (tmp_path / "users_model.py").write_text(MODULE)
    (tmp_path / "users_missing_import.py").write_text("import a_package_nobody_has")
    (tmp_path / "users_syntax.py").write_text("def f(:")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture(scope="module")
def built():
    family = cases.builtin_families()["Gaussian"]
    return tuple(
        cases.build_case(f"Gaussian, {name}", family, (), outputs=1, seed=seed, steps=20)
        for seed, name in enumerate(("linear", "linear again"))
    )


@pytest.fixture
def two_cases(built, monkeypatch):
    monkeypatch.setattr("natkal.paper.builtin_cases", lambda: built)


@pytest.mark.slow
def test_json_of_a_filtered_case(two_cases):
    answer = run("--case", "AGAIN", "--steps", "10", "--json", *PRECISION)
    assert answer.exit_code == 0, answer.output
    assert answer.stderr == ""
    result = json.loads(answer.stdout)
    assert result["passed"] is True
    assert (result["models"], result["failed"]) == (1, 0)
    assert result["claims"] == len(result["results"])
    assert {row["model"] for row in result["results"]} == {"Gaussian, linear again"}
    assert {row["steps"] for row in result["results"]} == {1, 10}
    assert {"claim", "setting", "statement", "params_deviation", "matrix_deviation", "tolerance", "passed"} <= set(
        result["results"][0]
    )
    assert {"Thm 2", "Prop. 3", "Prop. 4"} <= {row["claim"] for row in result["results"]}


@pytest.mark.slow
def test_table_of_all_cases(two_cases):
    answer = run("--steps", "5", *PRECISION)
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.count("Thm 2") == 1
    assert "All passed" in answer.stdout
    assert "on 2 models" in answer.stdout


def test_users_model(users_module):
    answer = run("--model", "users_model:good", *PRECISION)
    assert answer.exit_code == 0, answer.output
    assert "checks on users_model:good" in answer.stdout


@pytest.mark.float64
@pytest.mark.slow
def test_a_claim_above_tolerance_exits_1(two_cases, monkeypatch):
    from natkal import paper

    def off_by_a_little(*args, **options):
        first, *others = verify(*args, **options)
        return first._replace(params_deviation=1e-9, passed=False), *others

    verify = paper.verify
    monkeypatch.setattr(paper, "verify", off_by_a_little)
    answer = run("--case", "again", "--steps", "5")
    assert answer.exit_code == 1, answer.output
    assert "FAIL" in answer.stdout
    assert "1 failed" in answer.stdout
    answer = run("--case", "again", "--steps", "5", "--json")
    assert answer.exit_code == 1
    assert json.loads(answer.stdout)["passed"] is False


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("users_model", "write it as package.module:function"),
        ("no_such_module:f", "there is no module 'no_such_module'"),
        ("users_missing_import:f", "imports 'a_package_nobody_has', which is not installed"),
        ("users_syntax:f", "importing users_syntax failed: SyntaxError"),
        ("users_model:nothing", "has no function 'nothing'"),
        ("users_model:number", "not a function"),
        ("users_model:broken", "raised KeyError: 'weights' (users_model.py, line"),
        ("users_model:pair", "must return a tuple (model, inputs, targets), got a tuple of 2"),
        (
            "users_model:not_a_model",
            "must return a model made by natkal.static_model or natkal.recurrent_model first, got str",
        ),
        ("users_model:no_rows", "targets must be an array with one row per observation"),
        ("users_model:impossible_label", "is outside the two values 0 and 1"),
        ("users_model:wrong_width", "(users_model.py, line 8)"),
    ],
)
def test_bad_models_are_usage_errors(users_module, spec, complaint):
    answer = run("--model", spec, *PRECISION)
    assert_usage_error(answer, complaint)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--case", "Weibull"], "no built-in case has 'Weibull' in its name. There are: Gaussian, linear; Gaussian"),
        (["--case", "Poisson", "--model", "m:f"], "leave it out with --model"),
        (["--steps", "21"], "has only 20 rows, got 21"),
        (["--steps", "0"], "--steps"),
        (["--tolerance", "0"], "must be positive, got 0"),
        (["--dtype", "float16"], "float16"),
    ],
)
def test_bad_options_are_usage_errors(two_cases, arguments, complaint):
    assert_usage_error(run(*arguments), complaint)


def assert_usage_error(answer, complaint):
    assert answer.exit_code == 2, answer.output
    assert answer.stdout == ""
    assert "Traceback" not in answer.stderr
    said = " ".join(answer.stderr.replace("│", " ").split())
    assert complaint in said
