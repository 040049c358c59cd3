"""The full covariance matrix: exact, p^2 numbers."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from natkal import linalg
from natkal.curvature.base import Alone, Prior, Response, Update
from natkal.curvature.innovation import conditioned
from natkal.curvature.kernels import KERNELS, Kernel, best, size_of
from natkal.curvature.limits import largest_variance
from natkal.curvature.prior import KeptPrior, keep_prior, renew, respond_with_prior, with_prior_rows
from natkal.typing import Array, Float


class DenseState(NamedTuple):
    """The covariance P as its kernel keeps it, the prior if it is kept, and the variance forgetting may reach."""

    cov: Any
    prior: KeptPrior | None
    limit: Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class Dense(Alone):
    """The covariance form of Def. 5 without its R^-1; build it with `dense`."""

    factored: ClassVar[bool] = False
    prior_directions: int
    kernel: str | None = None
    mesh: Mesh | None = None
    waiting: int | None = None

    def kernel_for(self, size: int) -> Kernel:
        """What keeps and moves P for so many parameters, here."""
        return best(self.kernel, self.mesh, size, self.waiting)

    def init(self, prior: Prior) -> DenseState:
        """P_0."""
        if prior.cov is None:
            raise ValueError("prior_cov: dense curvature needs a prior covariance, got None (a diffuse start)")
        limit = largest_variance(prior.cov)
        cov = self.kernel_for(len(prior.cov)).start(prior.cov, limit)
        return DenseState(cov=cov, prior=keep_prior(prior), limit=limit)

    def update(
        self,
        state: DenseState,
        rows: Float[Array, "m p"],
        respond: Callable[[Float[Array, "m m"]], Response],
        keep: Float[Array, ""],
        restore: Float[Array, ""] | None = None,
        offset: Float[Array, " p"] | None = None,
    ) -> Update:
        """P <- P/keep - U'U, reading P once for the products with all rows."""
        kernel = self.kernel_for(rows.shape[1])
        renewal = renew(state.prior, keep, restore, self.prior_directions)
        stacked = with_prior_rows(renewal, rows)
        held = kernel.held(state.cov, state.limit)
        settled, images, before = kernel.advance(state.cov, stacked if held is None else stacked * held[None])
        images = images if held is None else images * held[None]
        gram = before / keep
        solved = conditioned(respond_with_prior(renewal, gram, respond, offset), gram)
        down = solved.change @ images / keep
        settled = settled if len(down) <= len(stacked) else kernel.settle(settled, len(down))
        learned = kernel.learn(settled, down, keep, held)
        return Update(
            state=state._replace(cov=learned.store, prior=state.prior if renewal is None else renewal.state),
            step=solved.weights @ images / keep,
            gram=before[-len(rows) :, -len(rows) :],
            declined=state._replace(cov=learned.declined),
        )

    def embed(self, state: DenseState, larger: DenseState, places: Any) -> DenseState:
        """P on the old parameters, the prior on the new ones, nothing in between."""
        whole = self.to_dense(larger).at[places[:, None], places[None, :]].set(self.to_dense(state))
        return larger._replace(cov=self.kernel_for(len(whole)).start(whole, larger.limit))

    def replaced(self, state: DenseState, cov: Float[Array, "p p"]) -> DenseState:
        """P <- cov."""
        return state._replace(cov=self.kernel_for(len(cov)).start(cov, state.limit))

    def in_fleet(self, rows: int, *, kept_prior: bool) -> "Dense":
        """With the kernel for many small matrices, where no other was asked for."""
        if self.kernel is not None or self.mesh is not None:
            return self
        waiting = rows + (self.prior_directions if kept_prior else 0)
        return dataclasses.replace(self, kernel="batch", waiting=waiting)

    def recast(self, state: DenseState, to: Any, size: int) -> DenseState:
        """The same P as another kernel keeps it."""
        old, new = self.kernel_for(size), to.kernel_for(size)
        return state if old == new else state._replace(cov=new.start(old.to_dense(state.cov), state.limit))

    def transition(
        self, state: DenseState, jacobian: Float[Array, "p p"], noise: Float[Array, "p p"] | None
    ) -> DenseState:
        """P <- F P F' + Q   (Def. 5, transition step)."""
        moved = jacobian @ self.to_dense(state) @ jacobian.T
        none = jnp.full_like(state.limit, jnp.inf)
        cov = self.kernel_for(len(jacobian)).start(moved if noise is None else moved + noise, none)
        return state._replace(cov=cov, limit=none)

    def solve(self, state: DenseState, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """P vector."""
        return self.kernel_for(len(vector)).multiply(state.cov, vector[None])[0]

    def quadratic(self, state: DenseState, rows: Float[Array, "m p"]) -> Float[Array, "m m"]:
        """Rows P rows'."""
        return self.kernel_for(rows.shape[1]).multiply(state.cov, rows) @ rows.T

    def to_dense(self, state: DenseState) -> Float[Array, "p p"]:
        """P in full."""
        return self.kernel_for(size_of(state.cov)).to_dense(state.cov)

    def sample(self, state: DenseState, key: Array) -> Float[Array, " p"]:
        """One draw from N(0, P)."""
        cov = self.to_dense(state)
        return linalg.cholesky(cov).triangle() @ jax.random.normal(key, cov.shape[:1], cov.dtype)


def check_directions(prior_directions: int) -> None:
    """At least one direction of a kept prior must be renewed per step."""
    if prior_directions < 1:
        raise ValueError(f"prior_directions: must be at least 1, got {prior_directions}")


def dense(*, prior_directions: int = 8, kernel: str | None = None, mesh: Mesh | None = None) -> Dense:
    """The full covariance matrix of the parameters.

    `prior_directions` matters with `prior_weight` only: how many directions of the kept prior are renewed at each step.
    With at least p of them Prop. 4 is exact, at a cost of p^3; with fewer, a step costs p^2 and the stored precision
    lacks at most a share `1 - (1 - fading)^(p / prior_directions)` of the prior.

    `kernel` says how the matrix is kept and moved; all learn the same, to rounding, and the fastest one for the size
    and the platform is taken unless one is named: "immediate", "deferred" (corrections wait and are folded in
    together), "jax" (the better of these two), "cpu" (one triangle, compiled), "gpu" (one triangle, in Triton), "batch"
    (compiled, for many small matrices under `vmap`; `nk.fleet` takes it by itself).

    `mesh` spreads the rows of the matrix over the devices of a mesh, of one process or of many; a step then sends p
    numbers for each row of the observation from device to device, and no more.
    """
    check_directions(prior_directions)
    if kernel is not None and kernel not in KERNELS:
        raise ValueError(f"kernel: must be one of {', '.join(KERNELS)}, got {kernel!r}")
    if mesh is not None and kernel not in (None, "deferred"):
        raise ValueError(f"kernel: {kernel!r} works on one device; leave it out with a mesh")
    # Axes of a mesh may be of kinds that ask for sharded types throughout; the compiler is to place the rest here.
    plain = None if mesh is None else Mesh(mesh.devices, mesh.axis_names)
    return Dense(prior_directions=prior_directions, kernel=kernel, mesh=plain)
