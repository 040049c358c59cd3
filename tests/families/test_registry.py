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
RAW_DRAWS = 4
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
    return 1.5 * jax.random.normal(jax.random.key(7), (RAW_DRAWS, family.raw_dim))


@functools.cache
def draws(name: str) -> jax.Array:
    """Parameters (the ordinary ones first) x draws x event."""
    case = CASES[name]
    parameters = naturals(case)
    keys = jax.random.split(jax.random.key(0), (len(parameters), DRAWS))
    many = jax.vmap(jax.vmap(case.family.sample, (0, None)), (0, 0))
    return jax.jit(many, compiler_options=FAST_COMPILE)(keys, parameters)


@functools.cache
def answers(name: str) -> dict[str, np.ndarray]:
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
            "mean_of_natural": family.mean(family.natural(mean)),
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
        }

    def all_of_it(nus, paired_nus, events, raw, raw_events):
        return (
            jax.vmap(of_natural)(nus),
            jax.vmap(jax.vmap(of_event, (None, 0)))(paired_nus, events),
            jax.vmap(of_raw)(raw, raw_events),
        )

    events = draws(name)[: len(case.naturals), :RAW_DRAWS]
    ordinary = jnp.asarray(case.naturals, float)
    found = jax.jit(all_of_it, compiler_options=FAST_COMPILE)(naturals(case), ordinary, events, raws(family), events[0])
    merged = {key: np.asarray(value) for part in found for key, value in part.items()}
    return merged | {"events": np.asarray(events)}


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
    close(found["mean_of_natural"][ordinary], found["mean"][ordinary], 10 * rtol)


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
    close(answers(name)["score"], answers(name)["score_by_grad"], rtol)


@each_case
def test_root_squares_to_the_fisher_matrix_of_raw(name, rtol):
    found = answers(name)
    jacobian, root = found["link_jacobian"], found["root"]
    close(root @ root.swapaxes(1, 2), jacobian.swapaxes(1, 2) @ found["cov_at_link"] @ jacobian, rtol)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.support is not None])
def test_probabilities_sum_to_one(name, rtol):
    case = CASES[name]
    nus = naturals(case)
    log_probs = jax.jit(jax.vmap(jax.vmap(case.family.log_prob, (None, 0)), (0, None)))(nus, jnp.asarray(case.support))
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
    family = CASES[name].family
    corners = jnp.concatenate(
        [
            jax.random.uniform(jax.random.key(3), (20, family.raw_dim), minval=-30.0, maxval=30.0),
            jnp.full((1, family.raw_dim), 30.0),
            jnp.full((1, family.raw_dim), -30.0),
        ]
    )

    def usable(raw: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
        nu = family.link(raw)
        return family.log_partition(nu), family.mean(nu), family.noise_root(nu), family.root(raw), family.score(raw, y)

    found = jax.jit(jax.vmap(usable, (0, None)), compiler_options=FAST_COMPILE)(corners, draws(name)[0, 0])
    assert all(np.isfinite(part).all() for part in found)


@each_case
@pytest.mark.parametrize("event_dtype", ["int32", "float32", "float64", "int8"])
def test_results_keep_the_dtype_of_the_parameter(name, event_dtype):
    """float32 parameters stay float32 whatever the observation's dtype, also where float64 is enabled."""
    family = CASES[name].family
    y = jax.ShapeDtypeStruct(family.event_shape, jax.dtypes.canonicalize_dtype(event_dtype))
    nu = jax.ShapeDtypeStruct((family.dim,), jnp.float32)
    raw = jax.ShapeDtypeStruct((family.raw_dim,), jnp.float32)
    of_natural = [family.mean, family.cov, family.noise_root, family.natural, family.log_partition]
    results = [jax.eval_shape(function, nu) for function in of_natural]
    results += [jax.eval_shape(function, nu, y) for function in (family.log_prob, family.error)]
    results += [jax.eval_shape(function, raw) for function in (family.link, family.root)]
    results += [jax.eval_shape(family.score, raw, y)]
    assert {result.dtype for result in results} == {np.dtype("float32")}
    statistic = jax.eval_shape(family.sufficient_statistic, y)
    assert statistic.shape == nu.shape
    assert jnp.issubdtype(statistic.dtype, jnp.floating)
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
def test_targets_of_another_shape_or_kind_are_refused(name):
    family = CASES[name].family
    with pytest.raises(ValueError, match="needs an array of shape"):
        family.check_targets(np.zeros((2, *family.event_shape, 1)))
    with pytest.raises(ValueError, match="needs an array of shape"):
        family.check_targets(np.asarray(1.0))
    with pytest.raises(ValueError, match="needs numbers"):
        family.check_targets(np.full((2, *family.event_shape), "cat"))
