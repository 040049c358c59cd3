"""An option is said once; every door has it from there."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

import natkal
from natkal.cli import app
from natkal.errors import StreamError
from natkal.settings.decide import DecisionSettings, HowToDecide
from natkal.settings.fields import options_of, taken
from natkal.settings.options import LearnerSettings, Options
from natkal.settings.settings import HowToRun, OfTheCommand, Settings, make_settings

COMMANDS = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("command", "owners"), [("learn", (Settings, HowToRun, OfTheCommand)), ("decide", (DecisionSettings, HowToDecide))]
)
def test_a_command_has_each_option_with_its_default_and_help(command, owners):
    found = {param.name: param for param in COMMANDS[command].params if param.name not in ("data", "help")}
    assert list(found) == [one.name for one in options_of(*owners)]
    for one in options_of(*owners):
        param = found[one.name]
        assert param.help == one.option.help
        if not one.option.many and not isinstance(one.default, tuple):
            assert param.default == one.default


def test_the_learners_options_are_those_of_the_estimators():
    """scikit-learn and river ask for constructors that spell their parameters."""
    from natkal.river import KalmanClassifier as River
    from natkal.sklearn import KalmanClassifier as Sklearn

    own = {one.name for one in options_of(LearnerSettings)} - {"seed", "level"}  # random_state; asked of a prediction
    for estimator in (River, Sklearn):
        given = inspect.signature(estimator.__init__).parameters
        assert own <= set(given)
        for one in options_of(LearnerSettings):
            if one.name in own - {"learner", "past"}:  # rows of an array have no order
                assert given[one.name].default == one.default, one.name


def test_every_field_of_the_settings_is_an_option():
    for owner in (Settings, DecisionSettings):
        assert len(options_of(owner)) == len(owner.__dataclass_fields__)
    assert len(options_of(Options)) == len(options_of(LearnerSettings))


def test_what_python_gives_is_read():
    made = make_settings(target="y", past=[1, 2], budget=50, classes=[0, 1], seed=np.int64(3), metrics=Path("m.csv"))
    assert (made.targets, made.past, made.budget, made.classes) == (("y",), "1,2", "50", ("0", "1"))
    assert type(made.seed) is int
    assert made.metrics == "m.csv"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"level": 0}, "--level: must be a number, 0.01 to 0.999, got 0"),
        ({"task": "guess"}, "--task: must be one of regression, binary"),
        ({"seed": True}, "--seed: must be a whole number, 0 or more, got True"),
        ({"sample": None}, "--sample: must be a whole number, 1 or more, got None"),
    ],
)
def test_a_value_that_cannot_be_is_refused(given, sentence):
    with pytest.raises(StreamError, match="^" + sentence):
        taken(Settings, {"target": "y", **given})


def test_no_function_has_more_than_15_arguments():
    """A longer list is a settings object; scikit-learn and river ask for constructors that spell theirs."""
    root = Path(natkal.__file__).parent
    long = [
        f"{path.relative_to(root)}: {node.name}"
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and len(node.args.args) + len(node.args.kwonlyargs) > 15
    ]
    assert [name for name in long if not name.endswith("__init__")] == []
