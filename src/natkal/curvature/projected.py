"""Condition exactly, then project: the update that every structured curvature shares."""

import abc
import functools
import operator
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import jax.numpy as jnp

from natkal.curvature.base import Alone, Prior, Response, Update
from natkal.curvature.innovation import conditioned, solved
from natkal.linalg import inverse
from natkal.rows import Outer, Rows
from natkal.typing import Array, Float

S = TypeVar("S")


class Look(NamedTuple):
    """`rows P rows'`, and whatever else of `P rows'` the structure will want again."""

    gram: Float[Array, "m m"]
    images: Any


class Projected(Alone, abc.ABC, Generic[S]):
    """A structured precision Lambda. One observation with Fisher matrix V V' makes

        predicted   Lambda_- = keep Lambda + restore Lambda_0                    (in the structure)
        step        (Lambda_- + V V')^-1 (rows' e - restore Lambda_0 offset)     (exact: only m x m matrices are solved)
        posterior   Lambda   = project(Lambda_- + V V')                          (the structure's only approximation)

    so the mean moves as a full filter with this prior would move it: a structure is defined by its projection alone.
    Rows may come factored: where a layer's are known to be outer products over the same inputs, nothing is m times p.
    """

    factored: ClassVar[bool] = True

    @abc.abstractmethod
    def init(self, prior: Prior) -> S:
        """The state before any observation."""

    @abc.abstractmethod
    def fade(self, state: S, keep: Float[Array, ""], restore: Float[Array, ""] | None) -> S:
        """Keep Lambda + restore Lambda_0."""

    @abc.abstractmethod
    def prior_product(self, state: S, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """Lambda_0 vector, for a prior that is kept."""

    @abc.abstractmethod
    def look(self, state: S, rows: Rows) -> Look:
        """Rows P rows'."""

    @abc.abstractmethod
    def move(self, state: S, rows: Rows, images: Any, weights: Float[Array, " m"]) -> Float[Array, " p"]:
        """P rows' weights."""

    @abc.abstractmethod
    def absorb(self, state: S, rows: Rows, look: Look, factor: Float[Array, "m r"], change: Float[Array, "r m"]) -> S:
        """Project Lambda + V V', V = rows' factor; `change` is `correction(gram, factor)` over all parameters."""

    @abc.abstractmethod
    def solve(self, state: S, vector: Float[Array, " p"]) -> Float[Array, " p"]:
        """P vector."""

    @abc.abstractmethod
    def to_dense(self, state: S) -> Float[Array, "p p"]:
        """The covariance matrix P in full."""

    @abc.abstractmethod
    def sample(self, state: S, key: Array) -> Float[Array, " p"]:
        """One draw from N(0, P)."""

    def quadratic(self, state: S, rows: Rows) -> Float[Array, "m m"]:
        """Rows P rows'."""
        return self.look(state, rows).gram

    def update(
        self,
        state: S,
        rows: Rows,
        respond: Callable[[Float[Array, "m m"]], Response],
        keep: Float[Array, ""],
        restore: Float[Array, ""] | None = None,
        offset: Float[Array, " p"] | None = None,
    ) -> Update:
        """Condition on the observation exactly, then project."""
        predicted = self.fade(state, keep, restore)
        look = self.look(predicted, rows)
        answer = respond(look.gram)
        factor = answer.factor
        if restore is None or offset is None:
            found = conditioned(answer, look.gram)
            return Update(
                state=self.absorb(predicted, rows, look, factor, found.change),
                step=self.move(predicted, rows, look.images, found.weights),
                gram=keep * look.gram,
            )
        drift = self.solve(predicted, -restore * self.prior_product(state, offset))
        found = solved(look.gram, factor, answer.push - factor @ (factor.T @ (rows @ drift)))
        return Update(
            state=self.absorb(predicted, rows, look, factor, found.change),
            step=drift + self.move(predicted, rows, look.images, found.weights),
            gram=self.quadratic(state, rows),
        )


FEW = 4
"""Up to so many rows, products are written out row by row: a matrix product is slow at them."""


def inner_products(left: Float[Array, "m p"], right: Float[Array, "n p"]) -> Float[Array, "m n"]:
    """`left right'`."""
    if len(left) <= FEW:
        return jnp.stack([right @ row for row in left])
    return left @ right.T


def combine(weights: Float[Array, " m"], rows: Float[Array, "m *shape"] | Outer) -> Float[Array, "*shape"]:
    """`sum_k weights_k rows_k`."""
    if isinstance(rows, Outer):
        return rows.inputs[:, None] * combine(weights, rows.deltas)[None, :]
    if len(rows) <= FEW:
        parts = [weight * row for weight, row in zip(weights, rows, strict=True)]
        return functools.reduce(operator.add, parts)
    return jnp.tensordot(weights, rows, axes=1)


def outer_products(left: Float[Array, "m n"], right: Float[Array, "m u"]) -> Float[Array, "n u"]:
    """`sum_k left_k right_k'`."""
    if len(left) <= FEW:
        parts = [one[:, None] * other[None, :] for one, other in zip(left, right, strict=True)]
        return functools.reduce(operator.add, parts)
    return left.T @ right


def squares(factor: Float[Array, "m r"], rows: Float[Array, "m *shape"] | Outer) -> Float[Array, "*shape"]:
    """The diagonal of V V', V = rows' factor."""
    if isinstance(rows, Outer):
        return jnp.square(rows.inputs)[:, None] * squares(factor, rows.deltas)[None, :]
    if len(rows) <= FEW and factor.shape[1] <= FEW:
        parts = [jnp.square(combine(column, rows)) for column in factor.T]
        return functools.reduce(operator.add, parts)
    return jnp.sum(jnp.square(jnp.tensordot(factor.T, rows, axes=1)), axis=0)


def weighted_gram(rows: Float[Array, "m n u"] | Outer, variances: Float[Array, "n u"]) -> Float[Array, "m m"]:
    """`rows P rows'` for independent parameters: of outer products, the sum over inputs is taken once for all rows."""
    if isinstance(rows, Outer):
        by_unit = jnp.square(rows.inputs) @ variances
        return inner_products(rows.deltas * by_unit[None, :], rows.deltas)
    flat = rows.reshape(len(rows), -1)
    return inner_products(flat * variances.reshape(1, -1), flat)


def needs_prior(prior: Prior, name: str) -> Float[Array, " p"] | Float[Array, "p p"]:
    """P_0, or an error for a diffuse start."""
    if prior.cov is None:
        raise ValueError(f"prior_cov: {name} curvature needs a prior covariance, got None (a diffuse start)")
    return prior.cov


def precision(cov: Float[Array, " p"] | Float[Array, "p p"]) -> Float[Array, " p"] | Float[Array, "p p"]:
    """Lambda_0 in the form P_0 came in: variances or a matrix."""
    return 1 / cov if cov.ndim == 1 else inverse(cov)


def diagonal_of(matrix: Float[Array, " p"] | Float[Array, "p p"]) -> Float[Array, " p"]:
    """Its diagonal, from either form."""
    return matrix if matrix.ndim == 1 else jnp.diag(matrix)
