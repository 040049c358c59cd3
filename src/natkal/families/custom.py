"""A family of one's own, from its log-partition function alone."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from natkal import linalg
from natkal.families.base import Event, Family, Natural, Raw, as_float
from natkal.families.checks import check_whole
from natkal.typing import Array, Bool, Float, Int

MAX_NEWTON_STEPS = 200
PROBES = (0.1, 3.0, -3.0)
"""Unconstrained outputs at which a link is tried."""


class _Parts(NamedTuple):
    """What the user gave to `from_log_partition`, under the names used there."""

    log_partition: Callable[[Array], Array]
    sufficient_statistic: Callable[[Array], Array]
    dim: int
    event_shape: tuple[int, ...]
    log_base: Callable[[Array], Array] | None
    link: Callable[[Array], Array] | None
    raw_dim: int
    sample: Callable[[Array, Array], Array] | None
    in_domain: Callable[[np.ndarray], np.ndarray] | None
    domain: str
    initial_natural: ArrayLike | None
    name: str


class _NewtonState(NamedTuple):
    """Where the iteration for `natural` stands; `decrement` is g' H^-1 g, twice what f has left to fall."""

    natural: Float[Array, " k"]
    decrement: Float[Array, ""]
    stalled: Bool[Array, ""]
    steps: Int[Array, ""]


@dataclasses.dataclass(frozen=True, eq=False)
class _CustomFamily(Family):
    """The family of a log-partition function; mean and covariance are its derivatives (Appendix)."""

    parts: _Parts

    def __repr__(self) -> str:
        return self.parts.name

    @property
    def dim(self) -> int:
        return self.parts.dim

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.parts.event_shape

    @property
    def domain(self) -> str:
        return self.parts.domain

    @property
    def raw_dim(self) -> int:
        return self.parts.raw_dim

    def sufficient_statistic(self, y: Event) -> Natural:
        return jnp.reshape(as_float(self.parts.sufficient_statistic(as_float(y))), (self.dim,))

    def log_partition(self, natural: Natural) -> Float[Array, ""]:
        return jnp.reshape(self.parts.log_partition(natural), ())

    def log_base(self, y: Event) -> Float[Array, ""]:
        value = as_float(y)
        if self.parts.log_base is None:
            return jnp.zeros((), value.dtype)
        return jnp.reshape(as_float(self.parts.log_base(value), value.dtype), ())

    def natural(self, mean: Natural) -> Natural:
        """Where log Z(nu) - nu . mean is least, by damped Newton; derivatives by the implicit function theorem."""
        initial = jnp.zeros_like(mean)
        if self.parts.initial_natural is not None:
            initial = jnp.reshape(as_float(self.parts.initial_natural, mean.dtype), (self.dim,))
        return jax.lax.custom_root(
            lambda natural: self.mean(natural) - mean,
            initial,
            lambda _, start: self._newton(jax.lax.stop_gradient(mean), start),
            lambda linear, right: linalg.solve(jax.jacobian(linear)(right), right),
        )

    def sample(self, key: Array, natural: Natural) -> Event:
        if self.parts.sample is None:
            raise ValueError(f"{self} has no sampler: pass sample=(key, natural) -> y to from_log_partition")
        return self.parts.sample(key, natural)

    def link(self, raw: Raw) -> Natural:
        return raw if self.parts.link is None else self.parts.link(raw)

    def check_link(self) -> None:
        """Log Z must be finite and convex wherever an unconstrained output may lie; a few places show whether it is."""
        for size in PROBES:
            raw = jnp.full(self.raw_dim, size)
            natural = self.link(raw)
            if not np.isfinite(self.log_partition(natural)):
                what = "link: leaves" if self.parts.link is not None else "link: without one, outputs leave"
                raise ValueError(
                    f"{what} the domain of log_partition: the unconstrained output {size:g} gives nu = "
                    f"{np.asarray(natural).tolist()}, where log Z is {float(self.log_partition(natural))}; "
                    'give a link into the domain, or a model with output="natural"'
                )
            variances = np.diagonal(np.atleast_2d(np.asarray(self.cov(natural))))
            if (variances < 0).any():
                raise ValueError(
                    f"log_partition: its second derivative at nu = {np.asarray(natural).tolist()} is "
                    f"{float(variances.min()):g}, the variance of T(y); log Z must be convex: is its sign right?"
                )

    def in_domain(self, targets: np.ndarray) -> np.ndarray:
        good = super().in_domain(targets)
        return good if self.parts.in_domain is None else good & self.parts.in_domain(targets)

    def _newton(self, mean: Natural, start: Natural) -> Natural:
        """Damped Newton on the convex f(nu) = log Z(nu) - nu . mean: halve the step until f is finite and no larger."""
        tolerance = jnp.finfo(mean.dtype).eps ** 2

        def objective(natural: Natural) -> Float[Array, ""]:
            return self.log_partition(natural) - jnp.sum(natural * mean)

        def newton_step(state: _NewtonState) -> _NewtonState:
            gradient = self.mean(state.natural) - mean
            direction = -linalg.solve(self.cov(state.natural), gradient)
            decrement = -jnp.sum(gradient * direction)
            before = objective(state.natural)
            slack = 10 * jnp.finfo(mean.dtype).eps * (1 + jnp.abs(before))

            def too_long(length: Float[Array, ""]) -> Array:
                after = objective(state.natural + length * direction)
                return (length > 1e-6) & ~(after <= before - 1e-4 * length * decrement + slack)

            length = jax.lax.while_loop(too_long, lambda length: 0.5 * length, jnp.ones_like(before))
            return _NewtonState(
                natural=state.natural + length * direction,
                decrement=decrement,
                # Close to the optimum a decrement falls quadratically; one that does not is rounding noise.
                stalled=(decrement < 1e-3) & (decrement > 0.25 * state.decrement),
                steps=state.steps + 1,
            )

        def unfinished(state: _NewtonState) -> Array:
            return (state.decrement > tolerance) & ~state.stalled & (state.steps < MAX_NEWTON_STEPS)

        first = _NewtonState(
            natural=start,
            decrement=jnp.full((), jnp.inf, mean.dtype),
            stalled=jnp.zeros((), bool),
            steps=jnp.zeros((), int),
        )
        last = jax.lax.while_loop(unfinished, newton_step, first)
        return jnp.where(last.steps < MAX_NEWTON_STEPS, last.natural, jnp.nan)


def from_log_partition(
    log_partition: Callable[[Array], Array],
    sufficient_statistic: Callable[[Array], Array],
    *,
    dim: int,
    event_shape: tuple[int, ...] = (),
    log_base: Callable[[Array], Array] | None = None,
    link: Callable[[Array], Array] | None = None,
    raw_dim: int | None = None,
    sample: Callable[[Array, Array], Array] | None = None,
    in_domain: Callable[[np.ndarray], np.ndarray] | None = None,
    domain: str = "the finite real numbers",
    initial_natural: ArrayLike | None = None,
    name: str = "from_log_partition(...)",
) -> Family:
    """The exponential family `p(y | nu) = exp(nu . T(y) - log Z(nu)) base(y)` of your own log Z and T.

    Mean and covariance are the first two derivatives of log Z; `natural(mean)` solves `d log Z / d nu = mean` by damped
    Newton from `initial_natural` (zeros unless given), which must lie in the domain of log Z; a mean that no natural
    parameter has gives NaN.

    Args:
        log_partition: nu of shape (dim,) to log Z(nu), twice differentiable. It must be NaN or inf outside its domain,
            which is how the search of `natural(mean)` knows where to stop.
        sufficient_statistic: one observation, as floats of shape `event_shape`, to T(y) of shape (dim,).
        dim: how many entries T(y) has.
        event_shape: the shape of one observation.
        log_base: one observation to the log of the reference density; 0 unless given.
        link: unconstrained outputs of shape (raw_dim,) to nu; the identity unless given.
        raw_dim: how many unconstrained outputs `link` takes; `dim` unless given.
        sample: (key, nu) to one observation; asking for a draw without it is an error.
        in_domain: targets of shape (n, *event_shape), in NumPy, to n booleans; finite targets pass unless given.
        domain: the possible observations in words, for error messages.
        initial_natural: where the search of `natural(mean)` starts.
        name: what `repr` and error messages call the family.

    >>> import jax.numpy as jnp
    >>> geometric = from_log_partition(lambda nu: -jnp.log1p(-jnp.exp(nu[0])), lambda y: y[None], dim=1,
    ...                                link=lambda raw: -jnp.logaddexp(raw, 0.0), initial_natural=jnp.array([-1.0]))
    >>> geometric.mean(geometric.natural(jnp.array([2.0]))).round(3).tolist()
    [2.0]
    """
    check_whole("dim", dim, least=1)
    if raw_dim is not None:
        check_whole("raw_dim", raw_dim, least=1)
        if link is None and raw_dim != dim:
            raise ValueError(f"raw_dim: without a link it must equal dim = {dim}, got {raw_dim}")
    if initial_natural is not None and np.size(initial_natural) != dim:
        raise ValueError(f"initial_natural: must have {dim} entries, got {np.size(initial_natural)}")
    _check_shape("sufficient_statistic: T(y)", sufficient_statistic, tuple(event_shape), dim, "dim")
    if link is not None:
        _check_shape("link: nu", link, (raw_dim or dim,), dim, "dim")
    return _CustomFamily(
        _Parts(
            log_partition=log_partition,
            sufficient_statistic=sufficient_statistic,
            dim=dim,
            event_shape=tuple(event_shape),
            log_base=log_base,
            link=link,
            raw_dim=raw_dim or dim,
            sample=sample,
            in_domain=in_domain,
            domain=domain,
            initial_natural=initial_natural,
            name=name,
        )
    )


def _check_shape(name: str, function: Callable[[Array], Array], takes: tuple[int, ...], size: int, what: str) -> None:
    """Refuse a function of the user's whose result has another number of entries than promised."""
    found = jax.eval_shape(function, jax.ShapeDtypeStruct(takes, float))
    entries = sum(np.prod(leaf.shape, dtype=int) for leaf in jax.tree.leaves(found))
    if entries != size:
        raise ValueError(
            f"{name} has {entries} entries, shape {jax.tree.map(lambda leaf: leaf.shape, found)}, and {what} is {size}"
        )
