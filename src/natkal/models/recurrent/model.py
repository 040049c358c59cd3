"""Models with a state: the parameters act through the whole past, and G carries that dependence."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from natkal.families.base import Family
from natkal.models.base import Feed, Linearization, Rollout, ravel, ravel_rows
from natkal.models.modules import is_module, recurrent_parts
from natkal.models.networks import mlp_apply, mlp_params
from natkal.models.recurrent.cells.base import Cell, readout_params
from natkal.models.recurrent.sensitivity.base import Sensitivity
from natkal.models.recurrent.sensitivity.exact import rtrl
from natkal.models.recurrent.sensitivity.traces import diagonal
from natkal.models.recurrent.system import Local, System
from natkal.models.rollout import unroll
from natkal.rows import Rows, dense_rows
from natkal.typing import Array, Float, Int, Params

SENSITIVITY_CAP = 1e4
"""Largest norm of G (of each of its factors, where it has several) unless told otherwise."""


EXACT = rtrl()
"""The sensitivity unless told otherwise."""


class RecurrentCarry(NamedTuple):
    """Between observations: the state, the sensitivity G, the state's own covariance W, and how often G was capped."""

    state: Any
    sensitivity: Any
    state_cov: Float[Array, "n n"] | None
    capped: Int[Array, ""]


@dataclasses.dataclass(frozen=True, eq=False)
class RecurrentModel:
    """`s' = cell(params, s, u)`, `raw = readout(params, s', u)`; build it with `recurrent_model`."""

    cell: Callable[[Params, Any, Any], Any]
    readout: Callable[[Params, Any, Any], Array]
    params: Params
    state: Any
    family: Family
    outputs: Family
    sensitivity: Sensitivity
    state_correction: bool
    project: Callable[[Any], Any] | None
    state_cov: ArrayLike | None
    process_noise: ArrayLike | None
    sensitivity_cap: float

    @property
    def size(self) -> int:
        """How many numbers the parameters hold (p)."""
        return self.system.size

    @property
    def uncertain(self) -> bool:
        """Whether the state is uncertain even when theta is known."""
        return self.state_cov is not None or self.process_noise is not None

    @cached_property
    def system(self) -> System:
        """The cell on flat vectors."""
        owners = getattr(self.cell, "owners", None)
        start = self.state(self.params) if callable(self.state) else self.state
        return System(
            cell=self.cell,
            params=self.params,
            state=start,
            owners=None if owners is None else np.asarray(owners(self.params)),
            wiring=getattr(self.cell, "wiring", None),
        )

    def init_carry(self, params: Params) -> RecurrentCarry:
        """s_0 and G_0 = d s_0 / d theta: zero, unless the state was given as a function of the parameters."""
        start = None
        state = self.state
        if callable(self.state):
            state, pullback = jax.vjp(lambda params: ravel(self.state(params)), params)
            start = ravel_rows(jax.vmap(lambda row: pullback(row)[0])(jnp.eye(len(state), dtype=state.dtype)))
            state = self.system.unravel_state(state)
        return RecurrentCarry(
            state=jax.tree.map(lambda leaf: jnp.asarray(leaf, self.system.dtype), state),
            sensitivity=self.sensitivity.init(self.system, start),
            state_cov=self._initial_cov(),
            capped=jnp.zeros((), jnp.int32),
        )

    def restart(self, params: Params, carry: RecurrentCarry) -> RecurrentCarry:
        """A new sequence: state, G and W start again; counts and random numbers go on."""
        fresh = self.init_carry(params)
        keys = getattr(carry.sensitivity, "key", None)
        sensitivity = fresh.sensitivity if keys is None else fresh.sensitivity._replace(key=keys)
        return RecurrentCarry(
            state=fresh.state, sensitivity=sensitivity, state_cov=fresh.state_cov, capped=carry.capped
        )

    def raw(self, params: Params, state: Float[Array, " n"], inputs: Any) -> Float[Array, " k"]:
        """The output, in the family's coordinates, read from the new state."""
        raw = jnp.reshape(self.readout(params, self.system.unravel_state(state), inputs), (-1,))
        if raw.size not in self.outputs.raw_sizes:
            sizes = " or ".join(map(str, self.outputs.raw_sizes))
            raise ValueError(f"readout: gives {raw.size} numbers per observation, {self.family} takes {sizes}")
        return raw

    def linearize(self, params: Params, carry: RecurrentCarry, inputs: Any) -> Linearization:
        """Move the state, move G, predict; `pullback(c) = c d raw/d theta + (c d raw/d s') G`."""
        system = self.system
        local = system.linearize(params, ravel(carry.state), inputs)
        advanced = self.sensitivity.advance(system, carry.sensitivity, local)
        sensitivity, capped = _cap(advanced, self.sensitivity_cap)
        raw, vjp = jax.vjp(lambda params, state: self.raw(params, state, inputs), params, local.next_state)

        def pullback(rows: Float[Array, "m k"]) -> Float[Array, "m p"]:
            direct, through = jax.vmap(vjp)(rows)
            return ravel_rows(direct) + self.sensitivity.rows(system, sensitivity, through)

        moved = RecurrentCarry(
            state=system.unravel_state(local.next_state),
            sensitivity=sensitivity,
            state_cov=self._predicted_cov(carry.state_cov, local),
            capped=carry.capped + capped,
        )
        if moved.state_cov is None:
            correct, spread = partial(self._corrected, moved), None
        else:
            by_state = jax.vmap(lambda row: vjp(row)[1])(jnp.eye(len(raw), dtype=raw.dtype))
            correct, spread = partial(self._conditioned, moved, by_state), by_state @ moved.state_cov @ by_state.T
        return Linearization(raw=raw, pullback=pullback, carry=moved, correct=correct, spread=spread)

    def _corrected(
        self, moved: RecurrentCarry, step: Float[Array, " p"], rows: Rows, factor: Array, score: Array
    ) -> RecurrentCarry:
        """s <- s + G step   (Thm 12), brought back into its range by `project`."""
        if not self.state_correction:
            return moved
        return self._with_state(moved, ravel(moved.state) + self.sensitivity.push(self.system, moved.sensitivity, step))

    def roll(self, params: Params, carry: RecurrentCarry, inputs: Any, horizon: int, feed: Feed | None) -> Rollout:
        """The model rolled forward: rows through G too, and W, process noise and fed-back noise in `spread`."""
        system = self.system

        def transition(params: Params, state: Array, u: Any, noise: Array | None) -> tuple[Array, Array]:
            moved = system.step(params, state, u)
            after = moved if noise is None else moved + noise
            return after, self.raw(params, after, u)

        noise = None if carry.state_cov is None else self.process_noise_matrix()
        ahead = unroll(transition, self.outputs, params, ravel(carry.state), inputs, horizon, feed, noise)
        flat = ahead.by_start.reshape(-1, system.state_size)
        through = self.sensitivity.rows(system, carry.sensitivity, flat).reshape(ahead.by_params.shape)
        spread = ahead.noise
        if carry.state_cov is not None:
            own = jnp.einsum("hkn,nm,hlm->hkl", ahead.by_start, carry.state_cov, ahead.by_start)
            spread = own if spread is None else own + spread
        return Rollout(raw=ahead.raw, rows=ahead.by_params + through, spread=spread)

    def with_outputs(self, family: Family) -> "RecurrentModel":
        """The same network, its outputs read as the unconstrained numbers of `family`."""
        return dataclasses.replace(self, family=family, outputs=family)

    def unravel(self, flat: Float[Array, " p"]) -> Params:
        """A flat vector as the parameter pytree."""
        return ravel_pytree(self.params)[1](flat)

    # -- an uncertain state (Lemmas 13 and 14) ------------------------------------------------------------------------

    def _conditioned(
        self,
        moved: RecurrentCarry,
        by_state: Float[Array, "k n"],
        step: Float[Array, " p"],
        rows: Rows,
        factor: Float[Array, "k r"],
        score: Float[Array, " k"],
    ) -> RecurrentCarry:
        """Given theta, s ~ N(s + G (theta - theta_0), W): an observation with C C' = (R + H W H')^-1, e = C C' E.

        With A = rows and H = by_state, Lemma 14 for any H and A:
        W <- W - W H' C C' H W,  G <- G - W H' C C' A,  s <- s + G step + W H' (e - C C' A step).
        """
        cov = moved.state_cov
        assert cov is not None
        image, jacobian = cov @ by_state.T, dense_rows(rows)
        gain_root = image @ factor
        corrected = (
            ravel(moved.state)
            + self.sensitivity.push(self.system, moved.sensitivity, step)
            + image @ (score - factor @ (factor.T @ (jacobian @ step)))
        )
        conditioned = RecurrentCarry(
            state=moved.state,
            sensitivity=self.sensitivity.condition(moved.sensitivity, gain_root, factor.T @ jacobian),
            state_cov=cov - gain_root @ gain_root.T,
            capped=moved.capped,
        )
        return self._with_state(conditioned, corrected)

    def _with_state(self, carry: RecurrentCarry, flat: Float[Array, " n"]) -> RecurrentCarry:
        state = self.system.unravel_state(flat)
        return carry._replace(state=state if self.project is None else self.project(state))

    def _initial_cov(self) -> Float[Array, "n n"] | None:
        if not self.uncertain:
            return None
        return _as_matrix(0.0 if self.state_cov is None else self.state_cov, self.system)

    def _predicted_cov(self, cov: Float[Array, "n n"] | None, local: Local) -> Float[Array, "n n"] | None:
        """W <- D W D' + Q   (Lemma 13, with process noise Q on the state)."""
        if cov is None:
            return None
        return local.state_jacobian @ cov @ local.state_jacobian.T + self.process_noise_matrix()

    def process_noise_matrix(self) -> Float[Array, "n n"]:
        """Q, what each step adds to W."""
        return _as_matrix(0.0 if self.process_noise is None else self.process_noise, self.system)


def _cap(sensitivity: Any, cap: float) -> tuple[Any, Int[Array, ""]]:
    """Every floating-point leaf scaled down to norm `cap`, zero where it is not finite; and whether any was."""

    def one(leaf: Array) -> tuple[Array, Array]:
        # Scaled by its largest entry first: the square of a large float32 would overflow.
        largest = jnp.max(jnp.abs(leaf), initial=0)
        unit = leaf / jnp.where(largest > 0, largest, 1)
        norm = largest * jnp.linalg.norm(unit)
        scaled = jnp.where(norm > cap, (cap / jnp.where(norm > 0, norm, 1)) * leaf, leaf)
        return jnp.where(jnp.isfinite(norm), scaled, 0), ~(norm <= cap)

    leaves, structure = jax.tree.flatten(sensitivity)
    capped = jnp.zeros((), bool)
    for index, leaf in enumerate(leaves):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            leaves[index], hit = one(leaf)
            capped = capped | hit
    return jax.tree.unflatten(structure, leaves), capped.astype(jnp.int32)


def _as_matrix(value: ArrayLike, system: System) -> Float[Array, "n n"]:
    """A number, n variances or an (n, n) matrix, as the matrix."""
    array = jnp.asarray(value, system.dtype)
    if array.ndim < 2:
        return jnp.diag(jnp.broadcast_to(array, (system.state_size,)))
    return array


def recurrent_model(
    cell: Callable[[Params, Any, Any], Any] | Any,
    readout: Callable[[Params, Any, Any], Array] | Any,
    params: Params | None = None,
    state: Any = None,
    family: Family | None = None,
    *,
    sensitivity: Sensitivity = EXACT,
    state_correction: bool = True,
    project: Callable[[Any], Any] | None = None,
    state_cov: ArrayLike | None = None,
    process_noise: ArrayLike | None = None,
    sensitivity_cap: float = SENSITIVITY_CAP,
) -> RecurrentModel:
    """A model with memory: `s' = cell(params, s, u)`, and `readout(params, s', u)` is what the law of y is made of.

    `cell` and `readout` may both be modules of Equinox, Flax NNX or Flax Linen (the readout, a linear layer say, then
    maps the cell's output); their parameters, `{"cell": .., "readout": ..}`, are then the default for `params`.

    `state` is s_0, a pytree of floats, or a function of the parameters that gives it (its learned entries then start
    with the right sensitivity). `sensitivity` says how d s / d theta is carried: `rtrl()` unless told otherwise.
    When theta moves, the state moves with it (`state_correction`), and `project(state)` may bring it back into its
    range. `state_cov` (W_0: a number, variances or a matrix) is what is not known of s_0, `process_noise` what each
    step adds; both need `rtrl()`. The norm of d s / d theta is held at or below `sensitivity_cap`.

    >>> import jax.numpy as jnp
    >>> import natkal as nk
    >>> model = nk.recurrent_model(
    ...     lambda w, s, u: jnp.tanh(w["a"] * s + u), lambda w, s, u: w["b"] * s,
    ...     {"a": jnp.array(0.5), "b": jnp.array(1.0)}, jnp.zeros(()), nk.families.Gaussian(1.0))
    >>> learner = nk.online(model)
    >>> state, info = nk.run(learner, learner.init(model.params), jnp.ones(3), jnp.ones(3))
    >>> info.log_prob.shape
    (3,)
    """
    if is_module(cell):
        cell, readout, params = recurrent_parts(cell, readout, params)
    if isinstance(family, Family):
        family.check_link()
    else:
        raise ValueError(f"family: must be one of natkal.families, got {family!r}")
    for name, tree in (("params", params), ("state", state(params) if callable(state) else state)):
        leaves = jax.tree.leaves_with_path(tree)
        if not leaves:
            raise ValueError(f"{name}: the pytree has no leaves, a recurrent model needs some")
        for path, leaf in leaves:
            if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
                where = f"{name}{jax.tree_util.keystr(path)}"
                raise ValueError(f"{where}: has dtype {jnp.result_type(leaf)}; every leaf must be floating point")
    if not sensitivity.full and (state_cov is not None or process_noise is not None):
        name = "state_cov" if state_cov is not None else "process_noise"
        raise ValueError(f"{name}: an uncertain state changes all of d s / d theta; it needs sensitivity=rtrl()")
    if not sensitivity_cap > 0:
        raise ValueError(f"sensitivity_cap: must be positive, got {sensitivity_cap}")
    model = RecurrentModel(
        cell=cell,
        readout=readout,
        params=params,
        state=state,
        family=family,
        outputs=family,
        sensitivity=sensitivity,
        state_correction=state_correction,
        project=project,
        state_cov=state_cov,
        process_noise=process_noise,
        sensitivity_cap=sensitivity_cap,
    )
    for name, given in (("state_cov", state_cov), ("process_noise", process_noise)):
        n = model.system.state_size
        if given is not None and np.shape(given) not in ((), (n,), (n, n)):
            raise ValueError(
                f"{name}: must be a number, {n} variances or a ({n}, {n}) matrix, got shape {np.shape(given)}"
            )
    return model


def recurrent_network(
    key: Array, cell: Cell, inputs: int, family: Family, *, hidden: Sequence[int] = (), **options: Any
) -> RecurrentModel:
    """A ready cell with an affine readout, fed vectors of length `inputs`; `options` as for `recurrent_model`.

    `hidden` gives the readout tanh layers of these sizes: what makes a network of linear units more than a linear
    filter. Where no unit reads another and the state is known, the sensitivity is `diagonal()` unless given: it is
    RTRL, at the cost of the forward pass.

    >>> import jax
    >>> import natkal as nk
    >>> nk.recurrent_network(jax.random.key(0), nk.cells.gru(4), 2, nk.families.Bernoulli()).size
    89
    """
    cell_key, readout_key = jax.random.split(key)
    if hidden:

        def readout(params: Params, state: Any, inputs: Any) -> Array:
            return mlp_apply(params["readout"], cell.output(state))

        readout_weights = mlp_params(readout_key, (cell.width, *hidden, family.raw_dim))
    else:
        readout, readout_weights = cell.readout, readout_params(readout_key, cell.width, family.raw_dim)
    params = {"cell": cell.params(cell_key, inputs), "readout": readout_weights}
    model = recurrent_model(cell, readout, params, cell.state(), family, **options)
    if "sensitivity" in options or model.uncertain or not model.system.is_diagonal:
        return model
    return dataclasses.replace(model, sensitivity=diagonal())
