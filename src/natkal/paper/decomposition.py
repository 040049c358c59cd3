"""Lemmas 13, 14 and Cor. 15: the joint covariance as (P_theta, G, W), for any W."""

from typing import NamedTuple

import jax.numpy as jnp

from natkal.paper.joint import blocks
from natkal.paper.solve import inverse, solve
from natkal.paper.state_space import Derivatives
from natkal.typing import Array, Float


class Decomposed(NamedTuple):
    """P = [[P_theta, (G P_theta)'], [G P_theta, W + G P_theta G']]   (eq. Pdecomp)."""

    cov: Float[Array, "p p"]
    sensitivity: Float[Array, "n p"]
    state_cov: Float[Array, "n n"]


def compose(parts: Decomposed) -> Float[Array, "s s"]:
    """P from its parts, as the product (eq. Pdecompprod)."""
    lift = jnp.concatenate([jnp.eye(parts.cov.shape[0]), parts.sensitivity])
    rest = jnp.pad(parts.state_cov, (parts.cov.shape[0], 0))
    return lift @ parts.cov @ lift.T + rest


def decompose(cov: Float[Array, "s s"], size: int) -> Decomposed:
    """G = P^{y-hat theta} (P^theta)^-1, W = P^{y-hat} - G P^theta G': the Schur complement."""
    parts = blocks(cov, size)
    sensitivity = solve(parts.params, parts.cross.T).T
    return Decomposed(
        cov=parts.params, sensitivity=sensitivity, state_cov=parts.state - sensitivity @ parts.params @ sensitivity.T
    )


def transition(parts: Decomposed, by: Derivatives, Q: Float[Array, "n n"] | None = None) -> Decomposed:
    """Lemma 13: P_theta stays, W <- D W D' (+ Q, where there is noise), G <- dPhi/dtheta + D G, D = dPhi/dy-hat."""
    moved = by.state @ parts.state_cov @ by.state.T
    return Decomposed(
        cov=parts.cov,
        sensitivity=by.params + by.state @ parts.sensitivity,
        state_cov=moved if Q is None else moved + Q,
    )


def observe_whole_state(parts: Decomposed, R: Float[Array, "n n"]) -> Decomposed:
    """Lemma 14 as it is proved, for H = (0, Id): G <- (I - W_new R^-1) G with the *new* W."""
    P, G, W = parts.cov, parts.sensitivity, parts.state_cov
    new_cov = _new_params_cov(P, G, W, R)
    new_state_cov = W - W @ solve(W + R, W)
    return Decomposed(cov=new_cov, sensitivity=G - new_state_cov @ solve(R, G), state_cov=new_state_cov)


def observe_whole_state_as_printed(parts: Decomposed, R: Float[Array, "n n"]) -> Decomposed:
    """Lemma 14 as it is printed, G <- (I - R^-1 W) G: right only where W and R commute. Kept to be tested."""
    P, G, W = parts.cov, parts.sensitivity, parts.state_cov
    new_state_cov = W - W @ solve(W + R, W)
    return Decomposed(
        cov=_new_params_cov(P, G, W, R), sensitivity=G - solve(R, new_state_cov) @ G, state_cov=new_state_cov
    )


def _new_params_cov(P: Array, G: Array, W: Array, R: Array) -> Array:
    """P_theta <- P_theta - P_theta G' (W + R + G P_theta G')^-1 G P_theta   (eq. recPupdate)."""
    return P - P @ G.T @ solve(W + R + G @ P @ G.T, G @ P)


def observe(parts: Decomposed, by: Derivatives, R: Float[Array, "k k"]) -> Decomposed:
    """Lemma 14 where h sees part of the state and theta directly: with A = H_theta + H_y G and S = H_y W H_y' + R,

    P_theta <- P_theta - P_theta A' (S + A P_theta A')^-1 A P_theta,  W <- W - W H_y' S^-1 H_y W,
    G <- G - W H_y' S^-1 A. For H_y = Id and H_theta = 0 this is R (W + R)^-1 G = (I - W_new R^-1) G.
    """
    P, G, W = parts
    A = by.params + by.state @ G
    S = by.state @ W @ by.state.T + R
    gain = solve(S, by.state @ W).T
    return Decomposed(
        cov=P - P @ A.T @ solve(S + A @ P @ A.T, A @ P),
        sensitivity=G - gain @ A,
        state_cov=W - gain @ by.state @ W,
    )


def observe_without_state_cov(
    cov: Float[Array, "p p"], sensitivity: Float[Array, "n p"], R: Float[Array, "n n"]
) -> Float[Array, "p p"]:
    """Cor. 15, for W = 0: (P_theta)^-1 <- (P_theta)^-1 + G' R^-1 G, and neither G nor W change."""
    return inverse(inverse(cov) + sensitivity.T @ solve(R, sensitivity))
