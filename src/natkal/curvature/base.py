"""The seam between what is observed and what is known: rows in, a step out."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from natkal.typing import Array, Bool, Float

Layout = tuple[tuple[str, tuple[int, ...]], ...]
"""The name and shape of each leaf of the parameters."""


class Prior(NamedTuple):
    """What is known before the first observation, on the flat parameter vector.

    `cov` is P_0: a vector of variances (p,), a covariance matrix (p, p), or None for no knowledge at all. `kept` is
    Sigma_0 in the same forms where the prior will be asked for again at every `restore` (Prop. 4), None where not.
    `layout` names each leaf of the parameters and its shape.
    """

    cov: Float[Array, " p"] | Float[Array, "p p"] | None
    kept: Float[Array, " p"] | Float[Array, "p p"] | None
    layout: Layout

    @property
    def size(self) -> int:
        """How many parameters there are (p)."""
        return sum(math.prod(shape) for _, shape in self.layout)


class Solved(NamedTuple):
    """The m x m algebra of one observation, with S = I + F' G F = L L'.

    `root` is L, `change` is L^-1 F', `weights` is (I + F F' G)^-1 push: P_new rows' push = P rows' weights.
    """

    root: Float[Array, "r r"]
    change: Float[Array, "r m"]
    weights: Float[Array, " m"]


class Response(NamedTuple):
    """What one observation says, along its rows: its Fisher matrix `V V'`, V = rows' factor, and its push e.

    `solved` is there where the answer needed the solution for the gram matrix it was asked with: it is linear in the
    push, so a step that is scaled down is not solved for again.
    """

    factor: Float[Array, "m r"]
    push: Float[Array, " m"]
    solved: Solved | None = None


class Update(NamedTuple):
    """The state after an observation, the step of the parameters, and rows P rows' as it was before.

    `declined` knows what was known before, for a caller who turns the observation down; None: the old state itself.
    Where it shares a matrix with `state`, choosing between the two moves nothing.
    """

    state: Any
    step: Float[Array, " p"]
    gram: Float[Array, "m m"]
    declined: Any = None


def chosen(accepted: Bool[Array, ""], update: Update, before: Any) -> Any:
    """The state to go on with: the new one where the observation was accepted, else what was known before it."""
    declined = before if update.declined is None else update.declined
    return jax.tree.map(lambda new, old: new if new is old else jnp.where(accepted, new, old), update.state, declined)


def projected(structure: Any, state: Any, to: Any, layout: Layout) -> Any:
    """What is known as the structure `to` keeps it, for parameters of this layout."""
    if structure == to:
        return state
    return to.init(Prior(cov=structure.to_dense(state), kept=None, layout=layout))


class Alone:
    """Defaults of a structure that is kept in one form only and cannot be made larger."""

    def in_fleet(self, rows: int, *, kept_prior: bool) -> Any:
        """Itself."""
        return self

    def recast(self, state: Any, to: Any, size: int) -> Any:
        """The state itself."""
        return state

    def project(self, state: Any, to: Any, layout: Layout) -> Any:
        """The covariance in full, as the other structure starts from it."""
        return projected(self, state, to, layout)

    def embed(self, state: Any, larger: Any, places: Any) -> Any:
        """Refused."""
        raise ValueError(f"{type(self).__name__}: a state of this structure cannot be made larger")

    def replaced(self, state: Any, cov: Any) -> Any:
        """Refused."""
        raise ValueError(f"{type(self).__name__}: a state of this structure does not take another covariance")


@runtime_checkable
class Curvature(Protocol):
    """A structure for the covariance of the parameters; see this folder's README for the equations.

    `rows` is a matrix (m, p). A structure with `factored = True` takes `FactoredRows` as well, and gets them where the
    model has them.
    """

    factored: ClassVar[bool]

    def init(self, prior: Prior) -> Any:
        """The state before any observation."""
        ...

    def update(
        self,
        state: Any,
        rows: Any,
        respond: Callable[[Float[Array, "m m"]], Response],
        keep: Float[Array, ""],
        restore: Float[Array, ""] | None = None,
        offset: Float[Array, " p"] | None = None,
    ) -> Update:
        """Lambda <- keep Lambda + restore Lambda_0 + V V', and the step that goes with it."""
        ...

    def solve(self, state: Any, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """P vector."""
        ...

    def quadratic(self, state: Any, rows: Any) -> Float[Array, "m m"]:
        """Rows P rows'."""
        ...

    def in_fleet(self, rows: int, *, kept_prior: bool) -> Any:
        """The same structure as it is best kept for many small learners of so many rows; itself unless it has one."""
        return self

    def recast(self, state: Any, to: Any, size: int) -> Any:
        """The same covariance as another form of this structure keeps it."""
        return state

    def project(self, state: Any, to: Any, layout: Layout) -> Any:
        """The state as `to`, a structure for the same parameters, keeps it: itself where the two are alike."""
        return projected(self, state, to, layout)

    def embed(self, state: Any, larger: Any, places: Any) -> Any:
        """The state of a larger parameter vector: `state` where it was known, the prior of `larger` elsewhere.

        Parameter i of the small vector is parameter `places[i]` (a NumPy array) of the large one; what is new is
        independent of what was known.
        """
        raise ValueError(f"{type(self).__name__}: a state of this structure cannot be made larger")

    def replaced(self, state: Any, cov: Float[Array, "p p"]) -> Any:
        """The state with another covariance in the place of its own; a full matrix only."""
        raise ValueError(f"{type(self).__name__}: a state of this structure does not take another covariance")

    def to_dense(self, state: Any) -> Float[Array, "p p"]:
        """The covariance matrix P in full."""
        ...

    def sample(self, state: Any, key: Array) -> Float[Array, " p"]:
        """One draw from N(0, P)."""
        ...
