"""An output that is uncertain even when theta is known: what that leaves of an observation."""

from natkal.curvature import correction
from natkal.typing import Array, Float


def widened(cov: Float[Array, "*h k k"], spread: Float[Array, "*h k k"] | None) -> Float[Array, "*h k k"]:
    """The covariance of the raw output: `cov` from theta, and `spread` from the state; None stands for zero."""
    return cov if spread is None else cov + spread


def blurred(
    factor: Float[Array, "k r"], score: Float[Array, " k"], spread: Float[Array, "k k"] | None
) -> tuple[Float[Array, "k r"], Float[Array, " k"]]:
    """Factor and score of an observation whose raw output carries an extra noise of covariance `spread` (Lemma 14).

    With F = C C' the Fisher matrix, `R = F^-1` becomes `R + spread`, and no R is needed: with L L' = I + C' spread C,
    (R + spread)^-1 = C_b C_b' for C_b = C L^-T, and (R + spread)^-1 E = e - C_b C_b' spread e for the score e = R^-1 E.
    """
    if spread is None:
        return factor, score
    narrowed = correction(spread, factor).T
    return narrowed, score - narrowed @ (narrowed.T @ (spread @ score))
