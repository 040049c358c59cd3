"""Every map of a row: finite, the same when columns come later, and named after the columns that it depends on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal.settings.options import make_options
from natkal.tables.learner.architectures import Layers, Shape, products_of
from natkal.tables.learner.choose import choose
from natkal.tables.learner.maps import COLUMNS, Cosines, Map, Products
from natkal.tables.learner.tasks import make_task
from natkal.tables.table import TableLearner, TargetShape

COLUMNS_FIRST, LATER = 5, 3
MAPS: dict[str, Map] = {
    "columns": COLUMNS,
    "products": Products((1, 2, 3, 4), plain=(3,)),
    "drawn products": Products(tuple(range(5)), most=4),
    "products of nothing": Products(()),
    "cosines": Cosines(COLUMNS_FIRST, waves=6),
    "near cosines": Cosines(COLUMNS_FIRST, waves=6, nearness=3.0),
}
"""Every kind of map enters here."""


def row(seed: int, columns: int = COLUMNS_FIRST) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=columns)


@pytest.mark.parametrize("name", MAPS)
def test_what_a_map_makes_is_finite_and_counted(name: str) -> None:
    """Also of the largest numbers that a scaled row has, and of a row of nothing."""
    own = MAPS[name]
    for features in (row(0), 40 * np.sign(row(1)), np.zeros(COLUMNS_FIRST)):
        made = np.asarray(own(jnp.asarray(features)))
        assert made.shape == (own.size(COLUMNS_FIRST),)
        assert np.isfinite(made).all()


@pytest.mark.parametrize("name", MAPS)
def test_later_columns_come_last_and_change_nothing_while_they_are_missing(name: str) -> None:
    own, features = MAPS[name], row(2)
    before = np.asarray(own(jnp.asarray(features)))
    after = np.asarray(own(jnp.asarray(np.append(features, np.zeros(LATER)))))
    np.testing.assert_allclose(after[: len(before)], before, rtol=1e-12)
    np.testing.assert_array_equal(after[len(before) :], 0)


@pytest.mark.parametrize("name", MAPS)
def test_names_say_what_each_number_depends_on(name: str) -> None:
    """The derivative by a column is not 0 exactly where the name has it."""
    own = MAPS[name]
    columns = [f"c{place}" for place in range(COLUMNS_FIRST)]
    names = own.names(columns)
    assert len(set(names)) == len(names) == own.size(COLUMNS_FIRST)
    depends = np.asarray(jax.jacfwd(own)(jnp.asarray(row(3)))) != 0
    for said, found in zip(names, depends, strict=True):
        assert [column in said for column in columns] == found.tolist(), said


def test_equal_maps_are_one() -> None:
    """So that programs made of them are shared."""
    assert Products((0, 1)) == Products((0, 1))
    assert hash(Layers((), map=Products((0, 1)))) == hash(Layers((), map=Products((0, 1))))


def test_products_are_of_the_columns_a_table_began_with() -> None:
    """Not of earlier targets, not the square of an indicator, and none of what comes later."""
    shape = Shape(columns=8, scaled=(True,) * 5 + (True, False, True), past=5, fan_in=7)
    assert products_of(shape, 0).pairs == ((5, 5), (5, 6))


def test_tables_with_columns_have_products() -> None:
    """A model for each key, one column and very many have none."""

    def has(columns: int, **options: object) -> bool:
        shape = Shape(columns=columns, scaled=(True,) * columns, past=0, fan_in=columns)
        spec = choose(make_options(**options), shape, make_task("regression"))
        return "products" in [group.architecture for group in spec.groups]

    assert has(2)
    assert has(64)
    assert not has(1)
    assert not has(65)
    assert not has(5, budget="fast")
    assert not has(5, model="linear")


def test_a_filter_on_products_learns_what_only_pairs_tell() -> None:
    """The label is the sign of a product: nothing for a linear filter, not for this one."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(800, 3))
    y = (inputs[:, 0] * inputs[:, 1] > 0).astype(float)
    loss = {}
    for model in ("linear", "products"):
        options = make_options(model=model, past="none", prior_scale=10.0, fading=0.0)
        learner = TableLearner(options, [True] * 3, [TargetShape("binary", 2, 2)], limits=False)
        loss[model] = -learner.learn(learner.rows(inputs, y[:, None])).wait().targets[0].log_prob[200:].mean()
    assert loss["linear"] > 0.65
    assert loss["products"] < 0.35
