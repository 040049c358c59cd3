"""How far one observation may move the parameters: textbook, capped, exact likelihood, relinearised."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from natkal.curvature import Response, attenuated, solved
from natkal.families.base import Event, Family
from natkal.models import Rows
from natkal.typing import Array, Bool, Float


class Seen(NamedTuple):
    """One observation around a linearisation point: the quadratic that stands for its log-likelihood.

    log p(raw + x) = score' x - x' C C' x / 2 for a displacement x of raw, with C = factor; rows = d raw / d theta.
    Where only m < k combinations T' raw are followed, rows = T' d raw / d theta and factor and score are in those
    coordinates; `lift` (k x m) then gives back the displacement of raw as far as those combinations show it.
    """

    rows: Rows
    factor: Float[Array, "m r"]
    score: Float[Array, " m"]
    curved: Bool[Array, " k"]
    lift: Float[Array, "k m"] | None = None


@dataclasses.dataclass(frozen=True)
class StepControl:
    """What to do where the quadratic cannot be trusted; build it with `step_control`."""

    cap: float | None
    newton: int
    relinearize: int

    def respond(
        self,
        seen: Seen,
        gram: Float[Array, "m m"],
        outputs: Family,
        raw: Float[Array, " k"],
        y: Event,
        rate: ArrayLike = 1.0,
        weight: ArrayLike = 1.0,
    ) -> Response:
        """What the observation says, given how uncertain its raw output is.

        Its log-likelihood counts `weight` times, its Fisher matrix `rate` times as much again.
        """
        answer = Response(factor=seen.factor, push=seen.score)
        if self.newton:
            answer = exact_likelihood(answer, gram, outputs, raw, y, self.newton)
        answer = Response(factor=jnp.sqrt(rate * weight) * answer.factor, push=jnp.asarray(weight) * answer.push)
        return answer if self.cap is None else capped(answer, gram, seen, self.cap)


def step_control(*, cap: float | None = 3.0, newton: int = 0, relinearize: int = 0) -> StepControl:
    """How one observation may move the parameters. `step_control(cap=None)` is the textbook filter of the paper.

    `cap`: an observation may move its own raw output (logits, log-rates, log-variances; not a Gaussian mean, where the
    likelihood is quadratic) by at most this much; the step is scaled down, what was learned of the curvature stays.
    `newton`: so many Newton iterations on the exact likelihood in the K-dimensional space of the raw output, prior
    fixed, the model linearised once. `relinearize`: linearise the model again so many times at the new parameters,
    prior fixed (an iterated filter in which each observation counts once).
    """
    if cap is not None and not cap > 0:
        raise ValueError(f"cap: must be positive or None, got {cap}")
    for name, value in (("newton", newton), ("relinearize", relinearize)):
        if value < 0:
            raise ValueError(f"{name}: must be at least 0, got {value}")
    return StepControl(cap=cap, newton=newton, relinearize=relinearize)


def displacement(answer: Response, gram: Float[Array, "k k"]) -> Float[Array, " k"]:
    """How far the step will move the raw output: rows P_new rows' push = G (I + C C' G)^-1 push."""
    return gram @ attenuated(gram, answer.factor, answer.push)


def capped(answer: Response, gram: Float[Array, "m m"], seen: Seen, cap: float) -> Response:
    """The same direction, no further than `cap` in any curved coordinate: solved once, and scaled."""
    found = solved(gram, answer.factor, answer.push)
    moved = gram @ found.weights
    moved = moved if seen.lift is None else seen.lift @ moved
    furthest = jnp.max(jnp.where(seen.curved, jnp.abs(moved), 0.0))
    share = jnp.minimum(1.0, cap / jnp.maximum(furthest, cap))
    shortened = found._replace(weights=share * found.weights)
    return Response(factor=answer.factor, push=share * answer.push, solved=shortened)


def exact_likelihood(
    answer: Response, gram: Float[Array, "k k"], outputs: Family, raw: Float[Array, " k"], y: Event, iterations: int
) -> Response:
    """Maximise log p(y | raw + x) - x' G^-1 x / 2 by Fisher scoring; the last quadratic is the answer.

    Around x: log p = s' (x' - x) - (x' - x)' F (x' - x) / 2, so seen from 0 the push is s + F x.
    """

    def improve(iteration: Array, now: tuple[Array, Response]) -> tuple[Array, Response]:
        moved = displacement(now[1], gram)
        # No iteration moves further than the quadratic can be trusted; the fixed point does not depend on it.
        change = moved - now[0]
        limit = jnp.where(outputs.curved(raw), 2.0, jnp.inf)
        longest = jnp.max(jnp.abs(change) / limit)
        x = now[0] + change / jnp.maximum(longest, 1.0)
        observed = outputs.observe(raw + x, y)
        push = observed.score + observed.root @ (observed.root.T @ x)
        return x, Response(factor=observed.root, push=push)

    return jax.lax.fori_loop(0, iterations, improve, (jnp.zeros_like(raw), answer))[1]
