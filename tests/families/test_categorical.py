"""The softmax at any logit gap, and its two forms: k - 1 log-odds or k logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natkal.families import Bernoulli, Categorical, Multinomial

GAPS_32 = [0.0, 1.0, 8.0, 17.0, 40.0, 80.0, 88.0, 120.0]
GAPS_64 = [0.0, 17.0, 37.0, 88.0, 300.0, 500.0]
gaps_of_each_dtype = pytest.mark.parametrize(
    ("dtype", "gaps"), [("float32", GAPS_32), pytest.param("float64", GAPS_64, marks=pytest.mark.float64)]
)


def exact(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """p, 1 - p and sqrt(p) in extended precision, nothing subtracted."""
    weights = np.exp(logits.astype(np.longdouble) - logits.max())
    others = weights.sum() - weights
    others[logits.argmax()] = np.delete(weights, logits.argmax()).sum()
    return weights / weights.sum(), others / weights.sum(), np.sqrt(weights / weights.sum())


@gaps_of_each_dtype
@pytest.mark.parametrize("form", ["log-odds", "logits"])
@pytest.mark.parametrize("top", [0, 3], ids=["top-first", "top-is-reference"])
def test_noise_root_is_right_at_any_gap(dtype, gaps, form, top):
    """Every entry to a few roundings of its own size, wherever the dtype can hold it."""
    family = Categorical(4)
    pattern = np.array([0.0, -0.5, -1.0, 0.3])
    pattern[top] = 0.0
    logits = pattern[None, :] - np.asarray(gaps)[:, None] * (np.arange(4) != top)[None, :]
    given = (logits - logits[:, -1:])[:, :3] if form == "log-odds" else logits
    given = np.asarray(given, dtype)
    found = np.asarray(jax.jit(jax.vmap(family.noise_root))(jnp.asarray(given)))
    covs = np.asarray(jax.jit(jax.vmap(family.cov))(jnp.asarray(given)))
    assert found.dtype == dtype
    assert np.isfinite(found).all()
    eps, tiny = np.finfo(dtype).eps, np.finfo(dtype).tiny
    for row, root, cov in zip(given, found, covs, strict=True):
        full = np.append(row, 0.0) if form == "log-odds" else row
        probs, others, roots = exact(full)
        expected = np.where(np.eye(4, dtype=bool), roots * others, -probs[:, None] * roots[None, :])[: len(row)]
        expected_cov = np.where(np.eye(4, dtype=bool), probs * others, -probs[:, None] * probs[None, :])
        slack = 4 * eps * (4 + np.abs(full).max())  # exp turns an absolute rounding of the logit into a relative one
        np.testing.assert_allclose(root, expected.astype(dtype), rtol=slack, atol=4 * tiny)
        np.testing.assert_allclose(cov, expected_cov[: len(row), : len(row)].astype(dtype), rtol=slack, atol=4 * tiny)
        np.testing.assert_allclose(root @ root.T, cov, rtol=0, atol=slack * np.abs(cov).max() + 4 * tiny)


@gaps_of_each_dtype
@pytest.mark.parametrize("label", [0, 1, 2])
def test_score_keeps_its_digits_at_any_gap(dtype, gaps, label):
    """c - p in a sure class is the sum of the other probabilities, not 1 - 1."""
    family = Categorical(3)
    logits = np.stack([np.array([gap, 0.5, 0.0]) for gap in gaps]).astype(dtype)
    found = np.asarray(jax.jit(jax.vmap(lambda raw: family.score(raw, jnp.asarray(label))))(jnp.asarray(logits)))
    assert found.dtype == dtype
    for row, score in zip(logits, found, strict=True):
        probs, others, _ = exact(row)
        expected = np.where(np.arange(3) == label, others, -probs).astype(dtype)
        slack = 4 * np.finfo(dtype).eps * (4 + np.abs(row).max())
        np.testing.assert_allclose(score, expected, rtol=slack, atol=4 * np.finfo(dtype).tiny)


@pytest.mark.parametrize("family", [Categorical(3), Multinomial(5, 3), Categorical(3, minimal=False)], ids=repr)
def test_log_odds_and_logits_say_the_same(family, rtol):
    logits = jnp.array([0.7, -1.2, 0.4])
    log_odds = logits[:-1] - logits[-1]
    y = jnp.array(1) if family.event_shape == () else jnp.array([2, 0, 3])
    np.testing.assert_allclose(family.log_prob(logits, y), family.log_prob(log_odds, y), rtol=rtol)
    np.testing.assert_allclose(family.mean(logits)[:-1], family.mean(log_odds), rtol=rtol)
    np.testing.assert_allclose(family.cov(logits)[:-1, :-1], family.cov(log_odds), rtol=rtol)
    np.testing.assert_allclose(family.noise_root(logits)[:-1], family.noise_root(log_odds), rtol=10 * rtol)


def test_draws_are_the_same_in_either_form():
    logits = jnp.array([0.7, -1.2, 0.4])
    key, family = jax.random.key(1), Categorical(3)
    assert int(family.sample(key, logits)) == int(family.sample(key, logits[:-1] - logits[-1]))


@pytest.mark.parametrize("minimal", [True, False])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("draws", [1, 5])
def test_a_network_may_put_out_either(draws, minimal, size, rtol):
    """Score and root, in as many entries as raw, are those that the derivative of the link gives."""
    family = Categorical(3, minimal=minimal) if draws == 1 else Multinomial(5, 3, minimal=minimal)
    raw = jnp.array([0.7, -1.2, 0.4])[:size]
    y = jnp.array(2) if family.event_shape == () else jnp.array([2, 0, 3])
    by_grad = jax.grad(lambda raw: family.log_prob(family.link(raw), y))(raw)
    jacobian = jax.jacobian(family.link)(raw)
    assert family.link(raw).shape == (family.dim,)
    np.testing.assert_allclose(family.score(raw, y), by_grad, rtol=rtol, atol=rtol)
    fisher = jacobian.T @ family.cov(family.link(raw)) @ jacobian
    np.testing.assert_allclose(family.root(raw) @ family.root(raw).T, fisher, rtol=rtol, atol=rtol)


def test_two_classes_are_a_bernoulli(rtol):
    """Class 0 of Categorical(2) is the yes of a Bernoulli: the last class is the reference."""
    nu = jnp.array([0.8])
    np.testing.assert_allclose(
        Categorical(2).log_prob(nu, jnp.array(0)), Bernoulli().log_prob(nu, jnp.array(1)), rtol=rtol
    )
    np.testing.assert_allclose(Categorical(2).cov(nu), Bernoulli().cov(nu), rtol=rtol)


def test_another_number_of_logits_is_refused():
    with pytest.raises(ValueError, match=r"takes 2 log-odds or 3 logits, got shape \(4,\)"):
        Categorical(3).mean(jnp.zeros(4))


def test_an_impossible_class_is_named():
    with pytest.raises(ValueError, match=r"target 7 is outside the 3 classes 0..2 of Categorical.* \(row 1204\)"):
        Categorical(3).check_targets(np.array([0, 7]), first_row=1203)
