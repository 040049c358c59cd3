"""Lemma 10 and the Appendix: Fisher matrices, by algebra, by enumeration and by differentiation."""

from typing import Any

import jax
import jax.numpy as jnp

from natkal.families.base import Family
from natkal.paper.gradient import log_likelihood, loss_gradient
from natkal.paper.kalman import Mean
from natkal.paper.solve import inverse, solve
from natkal.typing import Array, Float, Num


def information(H: Float[Array, "k p"], R: Float[Array, "k k"]) -> Float[Array, "p p"]:
    """H' R^-1 H, what one observation adds to P^-1 (Lemma 9); by Lemma 10 the Fisher matrix of s."""
    return H.T @ solve(R, H)


def fisher_of_natural(family: Family, natural: Float[Array, " k"]) -> Float[Array, "k k"]:
    """J_beta = Cov(T)   (Appendix, eq. J=cov_comp)."""
    return family.cov(natural)


def fisher_of_mean(family: Family, mean: Float[Array, " k"]) -> Float[Array, "k k"]:
    """J_Tbar = J_beta^-1 = Cov(T)^-1   (Appendix, eq. fishbarT)."""
    return inverse(fisher_of_natural(family, family.natural(mean)))


def change_parameters(fisher: Float[Array, "k k"], jacobian: Float[Array, "k p"]) -> Float[Array, "p p"]:
    """J_alpha = (dbeta/dalpha)' J_beta (dbeta/dalpha)   (Appendix)."""
    return jacobian.T @ fisher @ jacobian


def fisher_of_params(h: Mean, family: Family, params: Float[Array, " p"], u: Any) -> Float[Array, "p p"]:
    """The Fisher matrix of theta, from that of beta: no R^-1, so Lemma 10 compares two different computations."""

    def natural(params: Float[Array, " p"]) -> Float[Array, " k"]:
        return family.natural(h(params, u))

    return change_parameters(fisher_of_natural(family, natural(params)), jax.jacrev(natural)(params))


# -- the right side of Lemma 10, from its definition ---------------------------------------------------------------


def probabilities(family: Family, natural: Float[Array, " k"], support: Num[Array, "n ..."]) -> Float[Array, " n"]:
    """p(y | beta) for every y of a finite support."""
    return jnp.exp(jax.vmap(lambda y: family.log_prob(natural, y))(support))


def fisher_by_enumeration(
    h: Mean, family: Family, params: Float[Array, " p"], u: Any, support: Num[Array, "n ..."]
) -> Float[Array, "p p"]:
    """E_{y ~ p(y | y-hat)} [(dl(y)/dtheta)^2], a sum over the support."""
    weights = probabilities(family, family.natural(h(params, u)), support)
    gradients = jax.vmap(lambda y: loss_gradient(h, family, params, u, y))(support)
    return (gradients.T * weights[None, :]) @ gradients


def fisher_by_hessian(h: Mean, family: Family, params: Float[Array, " p"], u: Any) -> Float[Array, "p p"]:
    """-E_{y ~ p(y | y-hat)} [d^2 ln p(y | theta) / dtheta^2]   (Sec. 1.2), for any support.

    ln p(y | theta) = beta(theta) . T(y) - ln Z(beta(theta)) + const is linear in T(y), so the expectation puts y-hat,
    held fixed, in the place of T(y).
    """
    expected = h(params, u)

    def expected_loss(params: Float[Array, " p"]) -> Float[Array, ""]:
        natural = family.natural(h(params, u))
        return family.log_partition(natural) - natural @ expected

    return jax.hessian(expected_loss)(params)


def mean_fisher_by_enumeration(
    family: Family, mean: Float[Array, " k"], support: Num[Array, "n ..."]
) -> Float[Array, "k k"]:
    """(J_Tbar)_ij = E[d ln p/dTbar_i  d ln p/dTbar_j], from the definition in the Appendix."""
    weights = probabilities(family, family.natural(mean), support)
    scores = jax.vmap(lambda y: jax.grad(log_likelihood, argnums=1)(family, mean, y))(support)
    return (scores.T * weights[None, :]) @ scores
