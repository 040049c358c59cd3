"""Batch estimation by repeated passes: damped Gauss-Newton, one pass of the filter at a time."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal import linalg
from natkal.curvature.prior import prior_root
from natkal.engine import counter
from natkal.engine.checks import in_precision_of
from natkal.engine.learner import KalmanLearner
from natkal.engine.prior import make_prior
from natkal.engine.state import KalmanState
from natkal.models import dense_rows, ravel
from natkal.stream.checks import check_stream
from natkal.typing import Array, Bool, Float, Params

SHORTEST = 1 / 64
"""A step is halved down to this length; then the next pass is damped."""
FIRST_DAMPING = 1e-6
"""The damping mu after a step that no halving could save; ten times as much after the next, a tenth after one taken."""
LEAST_DAMPING = 1e-9
"""Below this the steps are not damped at all."""


class Objective(NamedTuple):
    """The log posterior up to a constant, and the sum of its terms' sizes, which rounding errors are relative to."""

    value: Float[Array, ""]
    size: Float[Array, ""]

    def plus(
        self, term: Float[Array, ""], keep: Float[Array, ""] | float = 1.0, cancelled: Float[Array, ""] | float = 0.0
    ) -> "Objective":
        """One more term, the earlier ones faded. `cancelled`: the size of what cancels inside the term."""
        return Objective(value=keep * self.value + term, size=keep * self.size + jnp.abs(term) + cancelled)

    def reaches(self, before: "Objective") -> Bool[Array, ""]:
        """Whether this is finite and at least what it was before, as far as sums can be told apart."""
        slack = 10 * jnp.finfo(self.value.dtype).eps * (self.size + before.size)
        return jnp.isfinite(self.value) & ((self.value >= before.value - slack) | ~jnp.isfinite(before.value))


class Pass(NamedTuple):
    """A pass under way: what is known so far, the log posterior and its gradient, the Fisher matrix's diagonal."""

    state: KalmanState
    objective: Objective
    gradient: Float[Array, " p"]
    fisher_diagonal: Float[Array, " p"]


class Trial(NamedTuple):
    """Parameters some way along a step, and whether they are at least as likely as those before it."""

    params: Params
    length: Float[Array, ""]
    rises: Bool[Array, ""]


class Estimate(NamedTuple):
    """The best parameters so far, the last pass's curvature, and how the next pass is damped."""

    params: Params
    last: KalmanState
    damping: Float[Array, ""]
    scale: Float[Array, " p"]


def refine(learner: KalmanLearner, params: Params, inputs: Any, targets: Any, *, passes: int = 10) -> KalmanState:
    """The posterior mode given all observations at once, as a learner's state.

    Every pass starts again from the prior (centred on `params`), linearises each observation at the best estimate so
    far and moves once, at its end: each observation counts once, and the passes are Gauss-Newton steps (Fisher
    scoring); on a generalised linear model, iteratively reweighted least squares. No step lowers the posterior: one
    that would is halved, and where halving does not help the next pass is damped (Levenberg and Marquardt), with
    Lambda + mu D in place of Lambda and D the diagonal of the Fisher matrix. One more pass gives the curvature at the
    mode, undamped. With `nk.information()` and `prior_cov=None` this is least squares or maximum likelihood.
    """
    check_stream(learner, inputs, targets)
    rows = in_precision_of(params, (inputs, targets))
    return _refined(learner.textbook, passes, learner.init(params), *rows)


@partial(jax.jit, static_argnums=(0, 1))
def _refined(learner: KalmanLearner, passes: int, start: KalmanState, inputs: Any, targets: Any) -> KalmanState:
    work = _Work(learner, start, inputs, targets)
    with jax.default_matmul_precision("highest"):
        centre = ravel(start.params)
        first = Estimate(start.params, last=start, damping=jnp.zeros_like(centre[0]), scale=jnp.zeros_like(centre))
        # The last turn, which moves nothing, gives the curvature at the mode.
        return jax.lax.fori_loop(0, passes + 1, lambda turn, best: work.improved(best, turn < passes), first).last


class _Work:
    """The data and the prior, and the two ways through them: an objective, and a pass that linearises."""

    def __init__(self, learner: KalmanLearner, start: KalmanState, inputs: Any, targets: Any) -> None:
        self.learner, self.start, self.rows = learner, start, (inputs, targets)
        self.centre = ravel(start.params)
        weight = learner.prior_weight
        scale = learner.rates.initial_scale(weight)
        self.prior = make_prior(learner.model, start.params, learner.prior_cov, scale=scale, kept=weight is not None)
        # Prop. 4: every observation gives back 1 - keep of n ln(prior), whose covariance is Sigma_0 / n.
        self.restored = None if self.prior.kept is None or weight is None else self.prior.kept / weight
        self.nothing = Objective(jnp.zeros_like(self.centre[0]), jnp.zeros_like(self.centre[0]))

    def improved(self, best: Estimate, moves: Bool[Array, ""]) -> Estimate:
        """One pass from the best estimate and, if it `moves`, its step: whole, or halved until the posterior rises."""
        damping = jnp.where(moves, best.damping, 0.0)
        end = self.run_pass(best.params, self.damped(damping, best.scale))
        step = self.learner.model.unravel(self.learner.curvature.solve(end.state.curvature, end.gradient))

        def shorter(trial: Trial) -> Trial:
            length = trial.length / 2
            params = jax.tree.map(lambda at, by: at + length * by, best.params, step)
            return Trial(params, length, self.objective(params).reaches(end.objective))

        def too_far(trial: Trial) -> Bool[Array, ""]:
            return moves & ~trial.rises & (trial.length > SHORTEST)

        unmoved = Trial(best.params, length=jnp.full_like(damping, 2.0), rises=jnp.zeros((), bool))
        trial = jax.lax.while_loop(too_far, shorter, unmoved)
        less = jnp.where(damping > LEAST_DAMPING, damping / 10, 0.0)
        more = jnp.maximum(10 * damping, FIRST_DAMPING)
        return Estimate(
            params=jax.tree.map(lambda new, old: jnp.where(trial.rises, new, old), trial.params, best.params),
            last=end.state,
            damping=jnp.where(trial.rises, less, more),
            scale=end.fisher_diagonal,
        )

    def run_pass(self, at: Params, curvature: Any) -> Pass:
        """All observations, linearised at `at`, from this curvature on."""
        learner = self.learner
        offset, pull, restored = ravel(at) - self.centre, self.pull(at, self.prior.cov), self.pull(at, self.restored)

        def observe(now: Pass, row: Any) -> tuple[Pass, None]:
            key, draw_key = learner.draw_keys(now.state)
            look = learner.look(now.state, row[0], row[1], draw_key)
            steps = counter.increment(now.state.steps)
            rate = learner.rate(counter.value(steps, look.log_prob.dtype), look.observed)
            update = learner.update(now.state, look, row[1], rate, weight=jnp.ones_like(rate.keep))
            jacobian = dense_rows(look.seen.rows)
            fisher_diagonal = rate.weight * jnp.sum(jnp.square(look.seen.factor.T @ jacobian), axis=0)
            given_back = (1 - rate.keep) * restored
            term = look.log_prob + 0.5 * jnp.sum(given_back * offset)
            # A prediction is a sum of parts of the size J theta, to which its rounding error is relative.
            cancelled = jnp.abs(look.seen.score) @ (jnp.abs(jacobian) @ jnp.abs(ravel(at)))
            return Pass(
                state=now.state._replace(curvature=update.state, carry=look.around.carry, steps=steps, key=key),
                objective=now.objective.plus(term, rate.keep, cancelled),
                gradient=rate.keep * now.gradient + look.seen.score @ jacobian + given_back,
                fisher_diagonal=rate.keep * now.fisher_diagonal + fisher_diagonal,
            ), None

        origin = Pass(
            state=self.start._replace(params=at, curvature=curvature),
            objective=self.nothing.plus(0.5 * jnp.sum(pull * offset)),
            gradient=pull,
            fisher_diagonal=jnp.zeros_like(pull),
        )
        return jax.lax.scan(observe, origin, self.rows)[0]

    def objective(self, at: Params) -> Objective:
        """The log posterior alone: a pass that learns nothing."""
        learner = self.learner
        offset = ravel(at) - self.centre
        of_prior, of_restored = (0.5 * jnp.sum(self.pull(at, cov) * offset) for cov in (self.prior.cov, self.restored))

        def observe(now: tuple[Any, counter.Counter, Objective], row: Any) -> tuple[Any, None]:
            carry, steps, objective = now
            look = learner.look(self.start._replace(params=at, carry=carry), row[0], row[1], self.start.key)
            steps = counter.increment(steps)
            keep = learner.rate(counter.value(steps, look.log_prob.dtype), look.observed).keep
            return (look.around.carry, steps, objective.plus(look.log_prob + (1 - keep) * of_restored, keep)), None

        origin = (self.start.carry, self.start.steps, self.nothing.plus(of_prior))
        return jax.lax.scan(observe, origin, self.rows)[0][2]

    def pull(self, at: Params, cov: Array | None) -> Float[Array, " p"]:
        """-cov^-1 (at - start): a prior's gradient, and twice its log density over at - start; none without a prior."""
        offset = ravel(at) - self.centre
        if cov is None:
            return jnp.zeros_like(offset)
        root = prior_root(cov)
        return -root.T @ (root @ offset) if root.ndim == 2 else -root * root * offset

    def damped(self, damping: Float[Array, ""], scale: Float[Array, " p"]) -> Any:
        """The curvature to start a pass with: that of Lambda_0 + mu D."""
        added = jnp.where(damping > 0, damping * jnp.where(scale > 0, scale, 1.0), 1.0)
        cov = self.prior.cov
        if cov is None:
            cov = 1 / added
        elif cov.ndim == 1:
            cov = 1 / (1 / cov + added)
        else:
            root = prior_root(cov)
            cov = linalg.inverse(root.T @ root + jnp.diag(added))
        begun = self.learner.curvature.init(self.prior._replace(cov=cov))
        return jax.tree.map(lambda new, old: jnp.where(damping > 0, new, old), begun, self.start.curvature)
