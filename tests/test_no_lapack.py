"""No step, prediction or draw calls LAPACK: two batched calls in one compiled loop wait for each other for ever.

`natkal.linalg` says why and has the factorisations that are used instead.
"""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import natkal as nk
from natkal.compiling.policy import primitives
from tests.banks.registry import LEARNERS
from tests.curvature import registry as curvatures
from tests.families.registry import CASES

LAPACK = {
    *("cholesky", "cholesky_update", "lu", "lu_pivots_to_permutation", "triangular_solve", "tridiagonal_solve"),
    *("qr", "geqrf", "geqp3", "householder_product", "eig", "eigh", "svd", "schur", "hessenberg", "tridiagonal"),
}
KEY = jax.random.key(0)
HARMLESS = r"(?!norm\b|block_diag\b)"
ROUTINE = re.compile(rf"\b(?:jnp|jax\.numpy|jax\.scipy|jax\.lax|lax)\.linalg\.{HARMLESS}\w+|multivariate_normal|lstsq")
QUICK = {"dense batch", "kronecker", "low rank", "categorical-logits", "gaussian-matrix", "custom-gaussian"}
"""Entries that `make test` traces; `make soak` traces all."""


def quick_and_slow(entries: dict) -> list:
    return [pytest.param(e, id=name, marks=[] if name in QUICK else [pytest.mark.slow]) for name, e in entries.items()]


def lapack_calls(function, *arguments) -> set[str]:
    return LAPACK.intersection(primitives(jax.make_jaxpr(function)(*arguments).jaxpr))


def test_the_list_has_the_names_that_jax_uses() -> None:
    matrix = jnp.eye(3)
    for call in (
        *(jnp.linalg.cholesky, jnp.linalg.inv, jnp.linalg.qr, jnp.linalg.eigh, jnp.linalg.svd, jnp.linalg.slogdet),
        *(lambda m: jnp.linalg.solve(m, m), lambda m: jax.scipy.linalg.solve_triangular(m, m)),
    ):
        assert lapack_calls(jax.vmap(call), matrix[None]), call


def test_no_file_names_a_lapack_routine() -> None:
    for path in Path(nk.__file__).parent.rglob("*.py"):
        assert not ROUTINE.findall(path.read_text()), path


def network(family) -> nk.models.Model:
    """Two layers that end in the family's raw coordinates."""
    params = [
        {"bias": jnp.zeros(2), "weight": jnp.full((3, 2), 0.1)},
        {"bias": jnp.zeros(family.raw_dim), "weight": jnp.full((2, family.raw_dim), 0.1)},
    ]

    def apply(layers, u):
        hidden = jnp.tanh(u @ layers[0]["weight"] + layers[0]["bias"])
        return hidden @ layers[1]["weight"] + layers[1]["bias"]

    return nk.static_model(apply, params, family)


@pytest.mark.parametrize("entry", quick_and_slow({entry.name: entry for entry in curvatures.REGISTRY}))
def test_a_bank_and_a_fleet_of_every_curvature(entry: curvatures.Entry) -> None:
    """With a kept prior and without; a bank holds its members under `vmap`, and so does a fleet."""
    model = network(nk.families.Categorical(3))
    u, y = jnp.ones(3), jnp.asarray(1)
    plain, kept = (
        nk.online(model, curvature=entry.build(), rates=nk.fading(0.01), prior_weight=weight) for weight in (None, 1.0)
    )
    fleet = nk.fleet(kept, 2)
    members = jax.eval_shape(lambda: fleet.init().members)
    two = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), (u, y))
    assert not lapack_calls(jax.vmap(fleet.inner.step), members, *two)
    bank = nk.bank([plain, nk.online(model, prior_cov=0.1, curvature=plain.curvature, rates=nk.fading(0.1))])
    state = jax.eval_shape(bank.init)
    assert not lapack_calls(lambda state: (bank.step(state, u, y), bank.predict(state, u).mean), state)
    assert not lapack_calls(jax.vmap(plain.sample, (None, 0)), jax.eval_shape(plain.init), jax.random.split(KEY, 2))


@pytest.mark.parametrize("case", quick_and_slow(CASES))
def test_a_step_a_prediction_and_a_draw_of_every_family(case) -> None:
    model = network(case.family)
    learner = nk.online(model, robust=nk.robust())
    u, target = jnp.ones(3), case.family.sample(KEY, jnp.asarray(case.naturals[0], float))

    def everything(state):
        expected = learner.predict(state, u)
        return learner.step(state, u, target), expected.mean, expected.sample(KEY)

    assert not lapack_calls(everything, learner.init())


@pytest.mark.slow
@pytest.mark.parametrize("entry", LEARNERS)
def test_every_learner(entry) -> None:
    inputs, targets = entry.stream
    learner = entry.learner

    def everything(state):
        expected = learner.predict(state, inputs[0])
        return learner.step(state, inputs[0], targets[0]), expected.mean, expected.sample(KEY)

    assert not lapack_calls(everything, jax.eval_shape(learner.init))
