"""The engine's step as an optax transformation: gradients in, natural-gradient steps out.

The Fisher matrix V V' of the observations cannot be had from the gradient; it comes as an extra argument, and `observe`
computes both in one pass. With the rows R = [A; g'] of Jacobian and gradient, factor F = [C; 0] and push e = (0, -1),

    R' F = A' C = V     and     R' e = -g,

so that `curvature.update` with R, F and e is the filter's step, whatever loss the gradient came from.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from natkal.curvature import Curvature, Prior, Response, dense
from natkal.engine import counter
from natkal.engine.rates import Rates, fading
from natkal.engine.step_control import Seen as Looked
from natkal.engine.step_control import StepControl, capped
from natkal.engine.step_control import step_control as default_step_control
from natkal.families.base import Observed
from natkal.models import Model, ravel, ravel_rows
from natkal.stream.checks import check_stream, explain_shapes
from natkal.typing import Array, Float, Params


class NaturalGradientState(NamedTuple):
    """The curvature, and how many observations it has seen."""

    curvature: Any
    steps: counter.Counter


class Seen(NamedTuple):
    """What a batch says at the current parameters; `extra` is what the transformation's `update` asks for.

    `gradients` are those of the batch's summed negative log-likelihood, `log_prob` each observation's log p.
    """

    gradients: Params
    extra: dict[str, Any]
    log_prob: Float[Array, " b"]


def natural_gradient(
    prior_cov: Any = 1.0,
    *,
    curvature: Curvature | None = None,
    rates: Rates | None = None,
    step_control: StepControl | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Online natural gradient descent as an optax transformation, the extended Kalman filter on the parameters.

    `update(gradients, state, params, **extra)` takes the gradients of a summed negative log-likelihood and, in `extra`,
    either `jacobian` (a pytree like the parameters with a leading axis: d raw / d theta for each of k outputs) with
    `noise_root` (k, r), a root of the Fisher matrix of the outputs; or `factor`, a pytree like the parameters with a
    leading axis of r: the columns of V, where V V' is the Fisher matrix of the parameters. `observe` makes the first.
    `observations` (1 unless given) says how many observations the batch holds: rates count observations.

    `prior_cov` (a number, or variances in a pytree like the parameters), `curvature`, `rates` and `step` are as for
    `natkal.online`; only the cap of `step` applies, and only where there is a `jacobian`: it bounds how far the
    batch moves its own outputs, those marked in `curved` (all unless given).

    >>> import jax.numpy as jnp
    >>> import optax
    >>> from natkal.optax import natural_gradient
    >>> optimizer = optax.chain(natural_gradient(1.0), optax.scale(1.0))
    >>> params = jnp.zeros(2)
    >>> state = optimizer.init(params)
    >>> u, y = jnp.array([1.0, 0.0]), 1.0  # y ~ N(u . params, 1)
    >>> gradients = -(y - u @ params) * u
    >>> updates, state = optimizer.update(gradients, state, params, factor=u[None])
    >>> optax.apply_updates(params, updates).tolist()
    [0.5, 0.0]
    """
    curvature = dense() if curvature is None else curvature
    rates = fading(0.0) if rates is None else rates
    control = default_step_control() if step_control is None else step_control
    if not rates.is_kalman:
        raise ValueError("rates: fisher_decay must equal the learning rate here; leave it out")
    if control.newton or control.relinearize:
        raise ValueError("step_control: newton and relinearize need the model; only cap works on gradients")

    def init(params: Params) -> NaturalGradientState:
        return NaturalGradientState(curvature=curvature.init(_prior(params, prior_cov)), steps=counter.zero())

    def update(
        updates: Params,
        state: NaturalGradientState,
        params: Params | None = None,
        *,
        factor: Params | None = None,
        jacobian: Params | None = None,
        noise_root: Float[Array, "k r"] | None = None,
        curved: Array | None = None,
        observations: Any = 1,
        **others: Any,
    ) -> tuple[Params, NaturalGradientState]:
        rows, root = _rows_and_root(factor, jacobian, noise_root)
        gradient = ravel(updates)
        stacked = jnp.concatenate([rows, gradient[None]])
        looked = Looked(
            rows=stacked,
            factor=jnp.concatenate([root, jnp.zeros((1, root.shape[1]), root.dtype)]),
            score=jnp.append(jnp.zeros(len(rows), rows.dtype), jnp.asarray(-1, rows.dtype)),
            curved=jnp.ones(len(rows), bool) if curved is None else curved,
            lift=jnp.eye(len(rows), len(rows) + 1, dtype=rows.dtype),
        )

        def respond(gram: Float[Array, "m m"]) -> Response:
            answer = Response(factor=looked.factor, push=looked.score)
            if control.cap is None or jacobian is None:
                return answer
            return capped(answer, gram, looked, control.cap)

        keep, steps = _keep(rates, state.steps, observations, gradient.dtype)
        with jax.default_matmul_precision("highest"):
            learned = curvature.update(state.curvature, stacked, respond, keep=keep)
        unravel = ravel_pytree(updates)[1]
        return unravel(learned.step), NaturalGradientState(curvature=learned.state, steps=steps)

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


def observe(model: Model, params: Params, inputs: Any, targets: Any) -> Seen:
    """Gradient and Fisher factor of a batch, in one pass; for a model without memory.

    `model` is a natkal model, for instance `natkal.static_model(module, family=...)` of an Equinox or Flax module; each
    leaf of `inputs` has one row for each of `targets`. An existing training loop changes two lines:

        seen = observe(model, params, inputs, targets)                # was: gradients = jax.grad(loss)(...)
        updates, state = optimizer.update(seen.gradients, state, params, **seen.extra)
    """

    def one(u: Any, y: Array) -> tuple[Array, Observed, Array]:
        around = model.linearize(params, model.init_carry(params), u)
        observed = model.outputs.observe(around.raw, y)
        rows = around.pullback(jnp.eye(len(around.raw), dtype=around.raw.dtype))
        return rows, observed, model.outputs.curved(around.raw)

    if jax.tree.leaves(model.init_carry(params)):
        raise ValueError("model: it carries a state from one observation to the next; use natkal.online and run")
    if jax.tree.structure(params) != jax.tree.structure(model.params):
        raise ValueError(
            f"params: structure {jax.tree.structure(params)} is not the model's {jax.tree.structure(model.params)}"
        )
    check_stream(model, inputs, targets)
    row = jax.tree.map(lambda leaf: leaf[0], inputs)
    carry = model.init_carry(params)
    with (
        explain_shapes(lambda row: model.linearize(params, carry, row).raw, row),
        jax.default_matmul_precision("highest"),
    ):
        rows, observed, curved = jax.vmap(one)(inputs, jnp.asarray(targets))
    flat = rows.reshape(observed.score.size, -1)
    return Seen(
        gradients=model.unravel(-observed.score.reshape(-1) @ flat),
        extra={
            "jacobian": jax.vmap(model.unravel)(flat),
            "noise_root": jax.scipy.linalg.block_diag(*observed.root),
            "curved": curved.reshape(-1),
            "observations": jnp.sum(jnp.any(observed.present, axis=1)),
        },
        log_prob=observed.log_prob,
    )


def _rows_and_root(factor: Params | None, jacobian: Params | None, noise_root: Array | None) -> tuple[Array, Array]:
    """Rows (k, p) and a root (k, r) with V = rows' root."""
    if (factor is None) == (jacobian is None) or (jacobian is None) != (noise_root is None):
        raise ValueError(
            "update: natural_gradient needs the Fisher matrix beside the gradient: pass factor=, or jacobian= and "
            "noise_root= (natkal.optax.observe makes them)"
        )
    rows = ravel_rows(jacobian if factor is None else factor)
    root = jnp.eye(len(rows), dtype=rows.dtype) if noise_root is None else noise_root
    if len(root) != len(rows):
        raise ValueError(f"noise_root: has {len(root)} rows, the Jacobian has {len(rows)}")
    return rows, root


def _keep(rates: Rates, steps: counter.Counter, observations: Any, dtype: Any) -> tuple[Array, counter.Counter]:
    """What is kept over so many observations, and the count after them."""

    def one(index: Array, now: tuple[Array, counter.Counter]) -> tuple[Array, counter.Counter]:
        count = counter.increment(now[1])
        return now[0] * rates.at(counter.value(count, dtype), prior_kept=False).keep, count

    return jax.lax.fori_loop(0, observations, one, (jnp.ones((), dtype), steps))


def _prior(params: Params, prior_cov: Any) -> Prior:
    leaves = jax.tree.leaves_with_path(params)
    same = jax.tree.structure(prior_cov) == jax.tree.structure(params)
    if not same and np.ndim(prior_cov):
        raise ValueError("prior_cov: must be a number, or variances in a pytree like the parameters")
    spread = prior_cov if same else jax.tree.map(lambda leaf: prior_cov, params)
    return Prior(
        cov=ravel(jax.tree.map(lambda value, leaf: jnp.full(leaf.shape, value, leaf.dtype), spread, params)),
        kept=None,
        layout=tuple((jax.tree_util.keystr(path), tuple(np.shape(leaf))) for path, leaf in leaves),
    )
