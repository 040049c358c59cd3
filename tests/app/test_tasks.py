"""Tasks and kinds guessed from first rows: real data sets, draws from known laws, and questions that are refused."""

import numpy as np
import pytest

from natkal.errors import StreamError
from natkal.tables.schema.guess import guess_task
from natkal.tables.schema.infer import infer

RNG = np.random.default_rng(0)


def text(values) -> list[str]:
    return [f"{value:g}" for value in values]


def real_targets() -> dict[str, list[str]]:
    from river import datasets
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

    return {
        "diabetes": text(load_diabetes().target),
        "airline passengers": text(y for _, y in datasets.AirlinePassengers()),
        "chick weights": text(y for _, y in datasets.ChickWeights()),
        "iris": text(load_iris().target),
        "wine": text(load_wine().target),
        "digits": text(load_digits().target[:1000]),
        "breast cancer": text(load_breast_cancer().target),
    }


def test_real_data_sets_get_the_task_people_give_them():
    guessed = {name: guess_task("y", values)[0] for name, values in real_targets().items()}
    assert guessed == {
        "diabetes": "regression",
        "airline passengers": "regression",
        "chick weights": "regression",
        "iris": "multiclass",
        "wine": "multiclass",
        "digits": "multiclass",
        "breast cancer": "binary",
    }


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["a", "b", "a"], "binary"),
        (["a", "b", "c"], "multiclass"),
        ([True, False], "binary"),
        ([True, True], "binary"),
        (["0", "1", "1"], "binary"),
        (["-1", "1"], "binary"),
        (["3"] * 50, "regression"),
        (["0"] * 50, "binary"),  # its other class is still to come
        (["0", "1", "2"] * 5, "multiclass"),
        (["1"] * 500 + ["2"] * 300 + ["7"] + ["9"] * 40, "multiclass"),  # a rare class is one
        (["0"] * 500 + ["1"] * 499 + ["2"], "multiclass"),
        (text(RNG.poisson(6, 1000)), "count"),
        (text(RNG.poisson(3, 1000)), "count"),
        (text(np.repeat(np.arange(8), [10, 25, 30, 20, 9, 4, 2, 1])), "count"),  # the largest value appears once
        (text(np.repeat(np.arange(3, 9), [10, 53, 681, 638, 199, 18])), "regression"),  # marks
        (text(np.repeat(np.arange(1, 8), [30, 31, 29, 30, 28, 32, 30])), "multiclass"),  # codes
        (text(RNG.negative_binomial(2, 0.1, 1000)), "count"),
        (text(RNG.poisson(200, 1000)), "regression"),
        (text(RNG.integers(18, 90, 1000)), "regression"),  # ages
        (text(RNG.integers(0, 40, 1000)), "regression"),  # spread evenly
        (["5", "7", "9"], "regression"),
        ([str(i - 20) for i in range(40)], "regression"),
        (["0.5", "1.25", "-3"], "regression"),
        (["0.5", "1.25", "1.1", "1.2", "400"], "positive"),
        ([str(2**60 + i % 5) for i in range(100)], "regression"),
        ([2**60 + i for i in range(300)], "regression"),
    ],
)
def test_task_follows_from_the_target(values, task):
    assert guess_task("y", values)[0] == task


@pytest.mark.parametrize(
    ("values", "options", "complaint"),
    [
        ([f"note {i}" for i in range(100)], {}, "'y': nearly every value differs .100 of the first 100.*--task"),
        ([*map(str, RNG.normal(size=80)), *(f"x{i}" for i in range(20))], {}, "80 of them numbers"),
        ([{"z": 1}, {"z": 2}], {}, "'y' holds nested values such as {'z': 1}"),
        ([[1]] * 5, {"task": "multiclass"}, "empty in the first rows|nested"),
        (["1,5", "2.5"] * 50, {}, "decimal points and numbers with decimal commas"),
        (["1,234", "5,678"] * 50, {}, "'1,234' may be 1234 or 1.234; say which with --decimal"),
        (["a", "b", "c"], {"task": "binary"}, "has 3 classes"),
        (["1"] * 5, {"decimal": ";"}, "--decimal"),
    ],
)
def test_targets_that_are_none_are_refused_with_a_reason(values, options, complaint):
    sample = {"x": list(map(str, range(len(values)))), "y": values}
    with pytest.raises(StreamError, match=complaint):
        infer(sample, ["y"], **options)


def test_what_was_refused_can_be_asked_for():
    notes = {"x": ["1"] * 100, "y": [f"note {i}" for i in range(100)]}
    assert len(infer(notes, ["y"], task="multiclass").targets[0].classes) == 100
    assert infer({"x": ["1"] * 50, "y": ["0"] * 50}, ["y"], task="count").targets[0].task == "count"
    assert infer({"x": ["1"] * 50, "y": ["0"] * 50}, ["y"], task="binary").targets[0].limit == 2


def test_columns_nobody_learns_from_are_ignored_and_said_so():
    rows = 100
    schema = infer(
        {
            "column 1": [str(i) for i in range(rows)],
            "name": [f"person {i}" for i in range(rows)],
            "both": ["1,5", "2.5"] * (rows // 2),
            "nested": [{"a": 1}] * rows,
            "empty": [""] * rows,
            "id": [str(i) for i in range(rows)],
            "n": [str(i) for i in range(rows)],
            "y": ["0", "1"] * (rows // 2),
        },
        ["y"],
        apart=["id"],
    )
    assert [feature.name for feature in schema.features] == ["n"]
    assert schema.ignored == {
        "id": "names the rows",
        "column 1": "counts the rows",
        "name": "text in which nearly every value differs",
        "both": "numbers with decimal points and numbers with decimal commas",
        "nested": "nested values",
        "empty": "empty in the first rows",
    }
    assert infer({"name": [f"p{i}" for i in range(rows)], "y": ["0", "1"] * 50}, ["y"], features=["name"]).features
    with pytest.raises(StreamError, match="column 'w' cannot be read as number, it holds 'a'"):
        infer({"w": ["a", "b"], "y": ["0", "1"]}, ["y"], features=["w:number"])
