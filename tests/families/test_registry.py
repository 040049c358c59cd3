"""What every family must satisfy, asked of every entry of the registry."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal.families import Family
from tests.families.registry import CASES, Case

DRAWS = 10_000
Z_LEVEL = 4.5  # a check of a right sampler fails once in 150,000; seeds are fixed
PAIRS = 4  # events checked per parameter
FAST_COMPILE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

each_case = pytest.mark.parametrize("name", CASES)


def close(actual: np.ndarray, desired: np.ndarray, rtol: float) -> None:
    """Equal to rounding, relative to the largest entry of each row (or to 1)."""
    rows = np.reshape(desired, (len(desired), -1))
    scale = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1.0)
    np.testing.assert_allclose(np.reshape(actual, rows.shape) / scale, rows / scale, rtol=0, atol=rtol)


def naturals(case: Case) -> jax.Array:
    return jnp.asarray(case.naturals + case.extreme, float)


def raws(family: Family) -> jax.Array:
    """A few ordinary raw outputs, then many within 30 of 0."""
    ordinary = 1.5 * jax.random.normal(jax.random.key(7), (PAIRS, family.raw_dim))
    wide = jax.random.uniform(jax.random.key(3), (20, family.raw_dim), minval=-30.0, maxval=30.0)
    ends = jnp.array([[30.0], [-30.0]]) * jnp.ones((1, family.raw_dim))
    return jnp.concatenate([ordinary, wide, ends])


@functools.cache
def draws(name: str) -> jax.Array:
    """Parameters (the ordinary ones first) x draws x event."""
    case = CASES[name]
    parameters = naturals(case)
    keys = jax.random.split(jax.random.key(0), (len(parameters), DRAWS))
    many = jax.vmap(jax.vmap(case.family.sample, (0, None)), (0, 0))
    return jax.jit(many, compiler_options=FAST_COMPILE)(keys, parameters)


@functools.cache
def answers(name: str) -> dict[str, Any]:
    """Everything the family says, in one compiled call: per natural, per (natural, y) and per (raw, y)."""
    case = CASES[name]
    family = case.family

    def of_natural(nu: jax.Array) -> dict[str, Any]:
        mean = family.mean(nu)
        return {
            "mean": mean,
            "mean_by_grad": jax.grad(family.log_partition)(nu),
            "cov": family.cov(nu),
            "cov_by_hessian": jax.hessian(family.log_partition)(nu),
            "noise_root": family.noise_root(nu),
            "natural": family.natural(mean),
        }

    def of_event(nu: jax.Array, y: jax.Array) -> dict[str, Any]:
        return {
            "log_prob": family.log_prob(nu, y),
            "log_prob_by_definition": Family.log_prob(family, nu, y),
            "error": family.error(nu, y),
            "error_by_definition": family.sufficient_statistic(y) - family.mean(nu),
        }

    def of_raw(raw: jax.Array, y: jax.Array) -> dict[str, Any]:
        nu = family.link(raw)
        return {
            "score": family.score(raw, y),
            "score_by_grad": jax.grad(lambda raw: family.log_prob(family.link(raw), y))(raw),
            "root": family.root(raw),
            "link_jacobian": jax.jacobian(family.link)(raw),
            "cov_at_link": family.cov(nu),
            "mean_at_link": family.mean(nu),
            "noise_root_at_link": family.noise_root(nu),
            "log_partition_at_link": family.log_partition(nu),
            "log_prob_at_link": family.log_prob(nu, y),
            "observed": family.observe(raw, y),
            "missing": family.observe(raw, jnp.full(family.event_shape, jnp.nan)),
        }

    def all_of_it(nus, paired_nus, events, raw, raw_events):
        return (
            jax.vmap(of_natural)(nus),
            jax.vmap(jax.vmap(of_event, (None, 0)))(paired_nus, events),
            jax.vmap(of_raw)(raw, raw_events),
        )

    events = draws(name)[: len(case.naturals), :PAIRS]
    raw = raws(family)
    raw_events = events[0][jnp.arange(len(raw)) % PAIRS]
    ordinary = jnp.asarray(case.naturals, float)
    found = jax.jit(all_of_it, compiler_options=FAST_COMPILE)(naturals(case), ordinary, events, raw, raw_events)
    merged = {key: value for part in found for key, value in part.items()}
    return jax.tree.map(np.asarray, merged) | {"events": np.asarray(events)}


@each_case
def test_mean_is_the_gradient_of_log_partition(name, rtol):
    close(answers(name)["mean"], answers(name)["mean_by_grad"], rtol)


@each_case
def test_cov_is_the_hessian_of_log_partition(name, rtol):
    close(answers(name)["cov"], answers(name)["cov_by_hessian"], rtol)


@each_case
def test_noise_root_squares_to_cov(name, rtol):
    root = answers(name)["noise_root"]
    assert np.isfinite(root).all()
    close(root @ root.swapaxes(1, 2), answers(name)["cov"], rtol)


@each_case
def test_natural_inverts_mean(name, rtol):
    """At ordinary parameters: at extreme ones rounding makes the mean forget the natural parameter."""
    family, found = CASES[name].family, answers(name)
    ordinary = slice(len(CASES[name].naturals))
    back, nus = found["natural"][ordinary], np.asarray(naturals(CASES[name]))[ordinary]
    if not getattr(family, "minimal", True):  # k logits are known up to a common shift
        back, nus = back - back[:, :1], nus - nus[:, :1]
    close(back, nus, 10 * rtol)


@each_case
def test_log_prob_agrees_with_scipy(name, rtol):
    case, found = CASES[name], answers(name)
    nus = np.asarray(case.naturals)
    expected = [[case.reference(nu, y) for y in ys] for nu, ys in zip(nus, found["events"], strict=True)]
    close(found["log_prob"], np.asarray(expected), rtol)


@each_case
def test_log_prob_is_its_definition(name, rtol):
    close(answers(name)["log_prob"], answers(name)["log_prob_by_definition"], rtol)


@each_case
def test_error_is_statistic_minus_mean(name, rtol):
    close(answers(name)["error"], answers(name)["error_by_definition"], rtol)


@each_case
def test_score_is_the_gradient_of_log_prob(name, rtol):
    close(answers(name)["score"][:PAIRS], answers(name)["score_by_grad"][:PAIRS], rtol)


@each_case
def test_root_squares_to_the_fisher_matrix_of_raw(name, rtol):
    parts = (answers(name)[part][:PAIRS] for part in ("root", "link_jacobian", "cov_at_link"))
    for root, jacobian, cov in zip(*parts, strict=True):
        close(root @ root.T, jacobian.T @ cov @ jacobian, rtol)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.support is not None])
def test_probabilities_sum_to_one(name, rtol):
    case = CASES[name]
    nus = naturals(case)
    table = jax.jit(jax.vmap(jax.vmap(case.family.log_prob, (None, 0)), (0, None)), compiler_options=FAST_COMPILE)
    log_probs = table(nus, jnp.asarray(case.support))
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=1), np.ones(len(nus)), rtol=rtol)


@each_case
def test_draws_have_the_right_mean_and_variance(name):
    family, found = CASES[name].family, answers(name)
    ordinary = slice(len(CASES[name].naturals))
    statistics = np.asarray(jax.vmap(jax.vmap(family.sufficient_statistic))(draws(name)[ordinary]), np.float64)
    for sample, mean, cov in zip(statistics, found["mean"][ordinary], found["cov"][ordinary], strict=True):
        assert np.all(np.abs(z_scores(sample, mean)) < Z_LEVEL)
        assert np.all(np.abs(z_scores((sample - mean) ** 2, np.diagonal(cov))) < Z_LEVEL)
        assert np.all(np.abs(z_scores((sample - mean).sum(axis=1, keepdims=True) ** 2, cov.sum())) < Z_LEVEL)


def z_scores(sample: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """How many standard errors the sample mean is from its expectation; a constant sample must equal it."""
    spread = sample.std(axis=0) / math.sqrt(len(sample))
    return (sample.mean(axis=0) - expected) / np.maximum(spread, 1e-5 * np.maximum(np.abs(expected), 1.0))


@each_case
def test_draws_are_in_the_domain(name):
    for sample in draws(name):
        CASES[name].family.check_targets(np.asarray(sample))


@pytest.mark.parametrize("name", [name for name in CASES if name != "natural-coordinates"])  # they promise no domain
def test_link_lands_in_the_domain(name):
    """Any raw output within 30 of 0 gives a usable parameter: nothing overflows on the way."""
    for part in ("mean_at_link", "noise_root_at_link", "log_partition_at_link", "score", "root"):
        assert np.isfinite(answers(name)[part]).all(), part


@each_case
def test_results_keep_the_dtype_of_the_parameter(name):
    """float32 parameters stay float32 whatever the observation's dtype, also where float64 is enabled."""
    family = CASES[name].family
    nu = jax.ShapeDtypeStruct((family.dim,), jnp.float32)
    raw = jax.ShapeDtypeStruct((family.raw_dim,), jnp.float32)

    def of_parameter(nu: jax.Array, raw: jax.Array) -> list[jax.Array]:
        of_natural = (family.mean, family.cov, family.noise_root, family.natural, family.log_partition)
        return [function(nu) for function in of_natural] + [family.link(raw), family.root(raw)]

    def of_event(nu: jax.Array, raw: jax.Array, y: jax.Array) -> list[jax.Array]:
        return [family.log_prob(nu, y), family.error(nu, y), family.score(raw, y)]

    results = jax.eval_shape(of_parameter, nu, raw)
    for dtype in ("int32", "float64"):
        y = jax.ShapeDtypeStruct(family.event_shape, jax.dtypes.canonicalize_dtype(dtype))
        results += jax.eval_shape(of_event, nu, raw, y)
        statistic = jax.eval_shape(family.sufficient_statistic, y)
        assert statistic.shape == nu.shape
        assert jnp.issubdtype(statistic.dtype, jnp.floating)
    assert {result.dtype for result in results} == {np.dtype("float32")}
    assert jax.eval_shape(family.sample, jax.random.key(0), nu).shape == family.event_shape


@each_case
def test_an_impossible_target_is_named_with_its_row(name):
    case = CASES[name]
    possible = np.asarray(draws(name)[0, :3])
    for impossible in case.impossible:
        targets = np.concatenate([possible, np.asarray([impossible])])
        assert case.family.in_domain(targets).tolist() == [True, True, True, False]
        with pytest.raises(ValueError, match=r"^target .* is outside .* \(row 1203\)$"):
            case.family.check_targets(targets, first_row=1200)


@each_case
def test_a_missing_target_is_allowed_and_says_nothing(name):
    family, found = CASES[name].family, answers(name)["missing"]
    family.check_targets(np.full((2, *family.event_shape), np.nan))
    assert not family.in_domain(np.full((2, *family.event_shape), np.nan)).any()
    assert not any(np.any(part) for part in found)


@each_case
def test_a_complete_target_is_observed_whole(name, rtol):
    found = answers(name)
    assert found["observed"].present.all()
    for part in ("score", "root"):
        close(getattr(found["observed"], part)[:PAIRS], found[part][:PAIRS], rtol)
    close(found["observed"].log_prob[:PAIRS], found["log_prob_at_link"][:PAIRS], rtol)


@each_case
def test_targets_of_another_shape_or_kind_are_refused(name):
    family = CASES[name].family
    with pytest.raises(ValueError, match="needs an array of shape"):
        family.check_targets(np.zeros((2, *family.event_shape, 1)))
    with pytest.raises(ValueError, match="needs an array of shape"):
        family.check_targets(np.asarray(1.0))
    with pytest.raises(ValueError, match="needs numbers"):
        family.check_targets(np.full((2, *family.event_shape), "cat"))
