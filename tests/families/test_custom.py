"""Families from their log-partition alone: the search for `natural(mean)`, its derivative, and what is missing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import natkal as nk
from natkal.families import Exponential, Poisson, from_log_partition, in_natural_coordinates
from tests.families.registry import custom_gaussian


def exponential_family():
    return from_log_partition(
        lambda nu: -jnp.log(-nu[0]), lambda y: y[None], dim=1, initial_natural=np.array([-1.0]),
        link=lambda raw: -jnp.exp(-raw),
    )  # fmt: skip


def poisson_family():
    return from_log_partition(lambda nu: jnp.exp(nu[0]), lambda y: y[None], dim=1)


@pytest.mark.parametrize(
    ("custom", "builtin"),
    [(exponential_family(), Exponential()), (poisson_family(), Poisson())],
    ids=["exp", "poisson"],
)
def test_natural_finds_the_closed_form(custom, builtin, rtol):
    """Newton's full step leaves the domain of -log(-nu) and overshoots exp(nu): damping brings both home."""
    means = jnp.array([[1e-3], [0.5], [20.0], [1e4]])
    np.testing.assert_allclose(
        jax.jit(jax.vmap(custom.natural))(means), jax.vmap(builtin.natural)(means), rtol=10 * rtol
    )


def test_a_mean_that_no_parameter_has_gives_nan():
    assert np.isnan(jax.jit(poisson_family().natural)(jnp.array([-1.0]))).all()


def test_von_mises(rtol):
    """A direction y: T = (cos y, sin y), log Z = log 2 pi I0(|nu|), of mean length I1 / I0."""
    family = from_log_partition(
        lambda nu: jnp.log(2 * jnp.pi * jax.scipy.special.i0e(jnp.linalg.norm(nu))) + jnp.linalg.norm(nu),
        lambda y: jnp.stack([jnp.cos(y), jnp.sin(y)]),
        dim=2,
        initial_natural=np.array([0.1, 0.1]),
    )
    nu, y = jnp.array([1.2, -0.9]), jnp.array(0.4)
    length = scipy.special.i1(1.5) / scipy.special.i0(1.5)
    expected = scipy.stats.vonmises(1.5, loc=np.arctan2(-0.9, 1.2)).logpdf(0.4)
    np.testing.assert_allclose(family.mean(nu), nu / 1.5 * length, rtol=rtol)
    np.testing.assert_allclose(family.log_prob(nu, y), expected, rtol=rtol)
    np.testing.assert_allclose(jax.jit(family.natural)(family.mean(nu)), nu, rtol=10 * rtol)


def test_natural_is_differentiable(rtol):
    """d natural / d mean = Cov^-1 (Appendix): a backward pass goes through the search."""
    family = custom_gaussian()
    nu = jnp.array([1.5, -0.7])
    mean = family.mean(nu)
    inverse_cov = np.linalg.inv(family.cov(nu))
    np.testing.assert_allclose(jax.jit(jax.jacrev(family.natural))(mean), inverse_cov, rtol=100 * rtol)


def test_raw_may_have_another_size_than_natural(rtol):
    """A curved family: two statistics, one raw output; score and root then have one row."""
    family = from_log_partition(
        lambda nu: -jnp.square(nu[0]) / (4 * nu[1]) - 0.5 * jnp.log(-2 * nu[1]),
        lambda y: jnp.stack([y, jnp.square(y)]),
        dim=2,
        link=lambda raw: jnp.stack([jnp.exp(-raw[0]), -0.5 * jnp.exp(-2 * raw[0])]),  # mean = standard deviation
        raw_dim=1,
        initial_natural=np.array([0.0, -0.5]),
    )
    raw = jnp.array([0.4])
    assert family.score(raw, jnp.array(1.0)).shape == (1,)
    root = family.root(raw)
    np.testing.assert_allclose(root @ root.T, [[3.0]], rtol=rtol)  # mu'^2 / v + 2 (s'/s)^2 = 1 + 2


def test_a_draw_without_a_sampler_is_an_error():
    with pytest.raises(ValueError, match="has no sampler: pass sample="):
        exponential_family().sample(jax.random.key(0), jnp.array([-1.0]))


def test_natural_coordinates_change_only_the_link(rtol):
    family = in_natural_coordinates(Exponential())
    nu, y = jnp.array([-0.4]), jnp.array(3.0)
    assert repr(family) == "Exponential()"
    assert family.domain == Exponential().domain
    assert in_natural_coordinates(family) is family
    np.testing.assert_allclose(family.link(nu), nu)
    np.testing.assert_allclose(family.score(nu, y), [3.0 - 2.5], rtol=rtol)
    np.testing.assert_allclose(family.root(nu), Exponential().noise_root(nu), rtol=rtol)


@pytest.mark.parametrize(
    ("link", "statistic", "message"),
    [
        (None, lambda y: y[None], 'without one, outputs leave the domain of log_partition.*output="natural"'),
        (lambda raw: jnp.exp(raw), lambda y: y[None], "link: leaves the domain of log_partition"),
        (lambda raw: -jnp.exp(raw), lambda y: jnp.stack([y, y]), r"T\(y\) has 2 entries, shape \(2,\), and dim is 1"),
        (lambda raw: jnp.concatenate([raw, raw]), lambda y: y[None], r"link: nu has 2 entries"),
    ],
)
def test_a_wrong_shape_or_a_link_that_leaves_the_domain_is_refused(link, statistic, message):
    def model():
        family = from_log_partition(lambda nu: -jnp.log(-nu[0]), statistic, dim=1, link=link)
        return nk.static_model(lambda w, u: w @ u, jnp.zeros(2), family)

    with pytest.raises(ValueError, match=message):
        model()


def test_a_log_partition_of_the_wrong_sign_is_refused():
    family = from_log_partition(lambda nu: jnp.log(-nu[0]), lambda y: y[None], dim=1, link=lambda raw: -jnp.exp(raw))
    with pytest.raises(ValueError, match="log Z must be convex"):
        nk.static_model(lambda w, u: w @ u, jnp.zeros(2), family)
