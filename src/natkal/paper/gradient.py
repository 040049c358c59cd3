"""Prop. 6 and Lemmas 7, 8: a Kalman step is a gradient step on the loss, preconditioned by the posterior covariance."""

from typing import Any

import jax

from natkal.families.base import Family
from natkal.paper.kalman import Mean, noise_cov
from natkal.paper.solve import solve
from natkal.typing import Array, Float


def log_likelihood(family: Family, mean: Float[Array, " k"], y: Any) -> Float[Array, ""]:
    """Ln p(y | y-hat): the family's density as a function of its mean parameter."""
    return family.log_prob(family.natural(mean), y)


def loss(h: Mean, family: Family, s: Float[Array, " p"], u: Any, y: Any) -> Float[Array, ""]:
    """l_t(y) = -ln p(y | y-hat_t) with y-hat_t = h(s, u_t)   (Def. 1)."""
    return -log_likelihood(family, h(s, u), y)


def loss_gradient(h: Mean, family: Family, s: Float[Array, " p"], u: Any, y: Any) -> Float[Array, " p"]:
    """(dl_t(y)/ds)', through y-hat = h(s, u) as Prop. 6 asks."""
    return jax.grad(loss, argnums=2)(h, family, s, u, y)


def error_from_gradient(family: Family, mean: Float[Array, " k"], y: Any) -> Float[Array, " k"]:
    """Lemma 7: E_t = R_t (d ln p(y_t | y-hat_t) / d y-hat_t)'.

    In terms of the loss this is E = -R (dl/d y-hat)'; the proof of Prop. 6 prints it without the minus sign.
    """
    score = jax.grad(log_likelihood, argnums=1)(family, mean, y)
    return noise_cov(family, mean) @ score


def gain_from_posterior(
    cov: Float[Array, "p p"], H: Float[Array, "k p"], R: Float[Array, "k k"]
) -> Float[Array, "p k"]:
    """Lemma 8: K_t R_t = P_t H_t' with the *posterior* P_t, so K_t = P_t H_t' R_t^-1."""
    return solve(R, H @ cov.T).T


def preconditioned_step(
    s: Float[Array, " p"], cov: Float[Array, "p p"], gradient: Float[Array, " p"]
) -> Float[Array, " p"]:
    """Prop. 6: s_t = s_{t|t-1} - P_t (dl_t(y_t)/ds_{t|t-1})'."""
    return s - cov @ gradient
