"""What the certificate says: the claims, the deviation that measures each, and one row of its result."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from natkal.typing import Array, Float

STATIC = {
    "Thm 2": "natural gradient at rate 1/(t+1) = static Kalman filter: theta_t = s_t, J_t = P_t^-1/(t+1)",
    "Prop. 3": "natural gradient at rate eta_t = fading-memory filter: theta_t = s_t, J_t = eta_t P_t^-1",
    "Prop. 4": "regularised natural gradient = filter that keeps its prior at constant weight",
    "Prop. 6": "a Kalman step is a gradient step: s_t = s_{t|t-1} - P_t (dl/ds)'",
    "Lemma 7": "errors are gradients: E_t = R_t (d ln p/d y-hat)'",
    "Lemma 8": "K_t R_t = P_t H_t'",
    "Lemma 9": "information filter: P_t^-1 = P_{t-1}^-1 + H' R^-1 H gives the same s_t and P_t",
    "Lemma 10": "H' R^-1 H = the Fisher matrix, from its definition",
    "Appendix": "the natural gradient of an expectation E f is Cov(f, T)",
    "Sec. 1.2": "the sampled Fisher matrix is unbiased: largest |z|, against its level 0.001 bound over all entries",
    "Sec. 1.1": "a categorical filter on k-1 probabilities = the natural gradient on all k logits",
    "Engine, Kalman": "the engine with fading memory = Prop. 3's filter",
    "Engine, natural gradient": "the engine with a learning rate = Def. 1",
    "Engine, kept prior": "the engine with prior_weight = Prop. 4's natural gradient",
}
"""The claims about static models, by where the paper makes them."""

RECURRENT = {
    "Def. 11": "the RTRL gradients at fixed theta add up to the gradient by back-propagation through time",
    "Thm 12": "joint Kalman filter on (theta, y-hat) = RTRL + natural gradient + state correction, P = eta (J^-1, G)",
    "Cor. 15": "from W_0 = 0, W stays 0: the joint covariance is that of theta, seen through G",
    "theta+init": "Thm 12 on (theta, y-hat_0) with G_0 = (0, Id) = the joint filter with W_0 > 0",
    "Lemma 13": "the transition of the joint filter, in (P_theta, G, W) for any W",
    "Lemma 14": "the observation of the joint filter, in (P_theta, G, W): G <- G - W H' S^-1 A",
    "Sec. 3.2": "the dual filter with the RTRL terms of the lemmas = the joint filter, with W_0 > 0 and noise",
    "Sec. 3.2, W": "W decays: |W_t| <= |W_0| prod |dPhi/dy-hat|^2",
    "Engine, joint filter": "the engine's recurrent model with fading memory = the joint filter",
    "Engine, natural gradient RTRL": "the engine's recurrent model at rate eta_t = the fading joint filter",
    "Engine, uncertain state": "the engine with W_0 > 0 and process noise = the joint filter with both",
}
"""The claims about recurrent models."""

STATEMENTS = STATIC | RECURRENT


class Deviation(NamedTuple):
    """How far apart two computations are, in a vector (the parameters) and in a matrix; None where not compared."""

    params: Float[Array, "..."] | None = None
    matrix: Float[Array, "..."] | None = None


class ClaimResult(NamedTuple):
    """One row of the certificate. A deviation is None where the claim is not about such a quantity."""

    claim: str
    setting: str
    statement: str
    model: str
    steps: int
    params_deviation: float | None
    matrix_deviation: float | None
    tolerance: float
    passed: bool


def deviation(value: Float[Array, "*shape"], reference: Float[Array, "*shape"]) -> Float[Array, ""]:
    """max|a - b| / max|b|, over the entries of one step; max|a - b| where b is zero."""
    scale = jnp.max(jnp.abs(reference))
    return jnp.max(jnp.abs(value - reference)) / jnp.where(scale > 0, scale, 1)


def result(
    claim: str, *, setting: str, model: str, steps: int, params: float | None, matrix: float | None, tolerance: float
) -> ClaimResult:
    """The row of a claim: it passes when every deviation it has is within the tolerance, which NaN never is."""
    measured = [value for value in (params, matrix) if value is not None]
    return ClaimResult(
        claim=claim,
        setting=setting,
        statement=STATEMENTS[claim],
        model=model,
        steps=steps,
        params_deviation=params,
        matrix_deviation=matrix,
        tolerance=tolerance,
        passed=all(value <= tolerance for value in measured),
    )


def results(
    found: Mapping[str, Deviation],
    by_schedule: str,
    schedules: Iterable[str],
    *,
    model: str,
    steps: int,
    tolerance: float,
) -> list[ClaimResult]:
    """The rows of all claims; `by_schedule` is the one that was run with each learning rate, and has a row for each."""

    def row(claim: str, setting: str, params: Any, matrix: Any) -> ClaimResult:
        return result(
            claim,
            setting=setting,
            model=model,
            steps=steps,
            params=None if params is None else float(params),
            matrix=None if matrix is None else float(matrix),
            tolerance=tolerance,
        )

    rows = []
    for claim, largest in found.items():
        if claim == by_schedule:
            assert largest.params is not None
            assert largest.matrix is not None
            rows += [row(claim, *run) for run in zip(schedules, largest.params, largest.matrix, strict=True)]
        else:
            rows.append(row(claim, "", largest.params, largest.matrix))
    return rows
