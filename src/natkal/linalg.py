"""Factorisations of positive definite matrices in plain JAX, for everything that runs once per observation.

On CPUs XLA runs independent LAPACK calls at the same time. A call that `vmap` has batched blocks a thread of the pool
while it waits for that pool, so two of them in one loop body may wait for each other for ever. These functions call no
library. They are blocked: rows are eliminated one by one inside blocks of `BLOCK`, everything else is matrix products.
No pivots are chosen: the matrices are positive definite, most of them with eigenvalues of at least 1. A matrix that is
not gives NaN, as LAPACK does.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.typing import Array, Float

UNROLLED = 6
"""Matrices up to this size are factored and solved in plain arithmetic, without a loop."""
BLOCK, LARGEST_BLOCK = 16, 128
"""Rows eliminated one by one; more where a matrix would have over 16 blocks, as each block is compiled by itself."""


class Leaf(NamedTuple):
    """L of one diagonal block, and its inverse; None up to `UNROLLED`, where substitution is as quick."""

    lower: Float[Array, "n n"]
    inverse: Float[Array, "n n"] | None

    def triangle(self) -> Float[Array, "n n"]:
        """L in full."""
        return self.lower

    def whiten(self, right: Float[Array, "n *m"]) -> Float[Array, "n *m"]:
        """L^-1 right."""
        return _substitute(self.lower, right) if self.inverse is None else self.inverse @ right

    def unwhiten(self, right: Float[Array, "n *m"]) -> Float[Array, "n *m"]:
        """L^-T right."""
        if self.inverse is None:
            return _substitute(self.lower[::-1, ::-1].T, right[::-1])[::-1]
        return self.inverse.T @ right

    def diagonal(self) -> Float[Array, " n"]:
        """The diagonal of L."""
        return jnp.diagonal(self.lower)


class Node(NamedTuple):
    """L = [[top, 0], [below, bottom]]."""

    top: "Factor"
    below: Float[Array, "k n"]
    bottom: "Factor"

    def triangle(self) -> Float[Array, "n n"]:
        """L in full."""
        corner = jnp.zeros(self.below.shape[::-1], self.below.dtype)
        return jnp.block([[self.top.triangle(), corner], [self.below, self.bottom.triangle()]])

    def whiten(self, right: Float[Array, "n *m"]) -> Float[Array, "n *m"]:
        """L^-1 right."""
        half = self.below.shape[1]
        above = self.top.whiten(right[:half])
        return jnp.concatenate([above, self.bottom.whiten(right[half:] - self.below @ above)])

    def unwhiten(self, right: Float[Array, "n *m"]) -> Float[Array, "n *m"]:
        """L^-T right."""
        half = self.below.shape[1]
        under = self.bottom.unwhiten(right[half:])
        return jnp.concatenate([self.top.unwhiten(right[:half] - self.below.T @ under), under])

    def diagonal(self) -> Float[Array, " n"]:
        """The diagonal of L."""
        return jnp.concatenate([self.top.diagonal(), self.bottom.diagonal()])


Factor = Leaf | Node
"""A lower triangular L, cut into halves until they are small."""


def cholesky(matrix: Float[Array, "n n"]) -> Factor:
    """L with L L' = matrix, for a positive definite matrix."""
    return _cholesky(matrix, _block(len(matrix)), None)


def semidefinite(matrix: Float[Array, "n n"]) -> Factor:
    """L with L L' = matrix to rounding, where some eigenvalues may be zero.

    The diagonal is raised by n eps of itself, more than rounding can take from a pivot, and no pivot is taken below
    that.
    """
    diagonal = jnp.diagonal(matrix)
    info = jnp.finfo(matrix.dtype)
    raised = 4 * len(matrix) * info.eps * diagonal + jnp.maximum(info.eps**2 * jnp.max(diagonal), info.tiny)
    return _cholesky(matrix + jnp.diag(raised), _block(len(matrix)), raised)


def triangular(lower: Float[Array, "n n"]) -> Factor:
    """A lower triangular matrix as a factor, to solve with."""
    return _triangular(lower, _block(len(lower)))


def solve(matrix: Float[Array, "n n"], right: Float[Array, "n *m"]) -> Float[Array, "n *m"]:
    """matrix^-1 right, for a positive definite matrix."""
    factor = cholesky(matrix)
    return factor.unwhiten(factor.whiten(right))


def inverse(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Of a positive definite matrix, symmetric to the last bit."""
    white = cholesky(matrix).whiten(jnp.eye(len(matrix), dtype=matrix.dtype))
    return white.T @ white


def pivoted_solve(system: Float[Array, "n n"], right: Float[Array, " n"]) -> Float[Array, " n"]:
    """system^-1 right for any small regular matrix: elimination with row exchanges, written out."""
    rows, rest = [], jnp.concatenate([system, right[:, None]], axis=1)
    while len(rest):
        largest = jnp.argmax(jnp.abs(rest[:, 0]))
        row = rest[largest]
        rows.append(row)
        others = rest.at[largest].set(rest[0])[1:]
        rest = others[:, 1:] - others[:, :1] / row[0] * row[None, 1:]
    solved = jnp.zeros(0, right.dtype)
    for row in reversed(rows):
        value = (row[-1] - jnp.sum(row[1:-1] * solved)) / row[0]
        solved = jnp.concatenate([value[None], solved])
    return solved


def triangular_root(rows: Float[Array, "m n"]) -> Float[Array, "n n"]:
    """Upper triangular R with R'R = rows' rows, by Householder reflections: no squared condition number."""
    count, size = rows.shape
    padded = jnp.pad(rows, ((0, max(size - count, 0)), (0, 0)))
    place, columns = jnp.arange(len(padded)), jnp.arange(size)

    def reflect(j: Array, reduced: Float[Array, "m n"]) -> Float[Array, "m n"]:
        column = jnp.where(place >= j, jax.lax.dynamic_index_in_dim(reduced, j, 1, keepdims=False), 0.0)
        head = column[j]
        length = jnp.sqrt(jnp.sum(jnp.square(column)))
        mirror = column.at[j].add(jnp.where(head < 0, -length, length))
        square = jnp.sum(jnp.square(mirror))
        weights = mirror @ reduced * (2 / jnp.where(square > 0, square, 1.0))
        return reduced - mirror[:, None] * jnp.where(columns >= j, weights, 0.0)[None, :]

    return jnp.triu(jax.lax.fori_loop(0, size, reflect, padded)[:size])


def eigenvectors(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Orthogonal columns that diagonalise a symmetric matrix, by descending eigenvalue: Jacobi's rotations.

    In each round every index is paired with another one and all pairs are rotated at once; n - 1 rounds pair each with
    each. Sweeps end when what is off the diagonal is rounding.
    """
    size = len(matrix)
    half = (size + 1) // 2
    even = jnp.pad(matrix, (0, 2 * half - size))
    # pairs are (i, half + i); the first index stays, the others move on by one place in a circle
    circle = [0, half, *range(1, half - 1), *range(half + 1, 2 * half), half - 1] if half > 1 else [0, 1]
    order = np.asarray(circle)
    identity = jnp.eye(2 * half, dtype=matrix.dtype)
    tolerance = jnp.finfo(matrix.dtype).eps * jnp.sqrt(jnp.sum(jnp.square(matrix)))

    def turn(rows: Array, cos: Array, sin: Array) -> Array:
        above, under = rows[:half], rows[half:]
        pair = (cos[:, None] * above - sin[:, None] * under, sin[:, None] * above + cos[:, None] * under)
        return jnp.concatenate(pair)[order]

    def rotate(round_: Array, both: Float[Array, "n k"]) -> Float[Array, "n k"]:
        now = both[:, : 2 * half]
        diagonal, across = jnp.diagonal(now), jnp.diagonal(now, half)
        gap = (diagonal[half:] - diagonal[:half]) / 2
        tangent = across / jnp.where(across == 0, 1.0, gap + jnp.where(gap < 0, -1.0, 1.0) * jnp.hypot(gap, across))
        cos = 1 / jnp.sqrt(1 + jnp.square(tangent))
        turned = turn(both, cos, tangent * cos)
        return jnp.concatenate([turn(turned[:, : 2 * half].T, cos, tangent * cos).T, turned[:, 2 * half :]], axis=1)

    def unfinished(state: tuple[Array, Array]) -> Array:
        sweep, both = state
        now = both[:, : 2 * half]
        return (sweep < 15) & (jnp.max(jnp.abs(now - jnp.diag(jnp.diagonal(now)))) > tolerance)

    def sweep(state: tuple[Array, Array]) -> tuple[Array, Array]:
        return state[0] + 1, jax.lax.fori_loop(0, 2 * half - 1, rotate, state[1])

    start = (jnp.zeros((), jnp.int32), jnp.concatenate([even, identity], axis=1))
    both = jax.lax.while_loop(unfinished, sweep, start)[1]
    # a row that only fills up stays an eigenvector of its own, with no part in the others
    filling = jnp.sum(jnp.square(both[:, 2 * half + size :]), axis=1) > 0.5
    values = jnp.where(filling, -jnp.inf, jnp.diagonal(both))
    index = jnp.arange(2 * half)
    before = (values[None, :] > values[:, None]) | (
        (values[None, :] == values[:, None]) & (index[None] < index[:, None])
    )
    ranked = jnp.zeros_like(index).at[jnp.sum(before, axis=1)].set(index)
    return both[ranked[:size], 2 * half : 2 * half + size].T


def _block(size: int) -> int:
    """How many rows are eliminated one by one."""
    return min(max(BLOCK, -(-size // 16)), LARGEST_BLOCK)


def _cholesky(matrix: Float[Array, "n n"], block: int, least: Float[Array, " n"] | None) -> Factor:
    """The factor; `least` has the smallest pivots to be taken, where the matrix may be singular.

    There the inverse of a block is so large that its products lose half of their digits. What they leave of the right
    side is solved for once more, which brings the digits back.
    """
    size = len(matrix)
    if size <= UNROLLED:
        return Leaf(_unrolled(matrix, least), None)
    if size <= block:
        return _eliminated(matrix, least)
    half = (size + 1) // 2
    top = _cholesky(matrix[:half, :half], block, None if least is None else least[:half])
    right = matrix[:half, half:]
    below = top.whiten(right)
    if least is not None:
        below = below + top.whiten(right - top.triangle() @ below)
    rest = matrix[half:, half:] - below.T @ below
    return Node(top, below.T, _cholesky(rest, block, None if least is None else least[half:]))


def _pivot(value: Float[Array, ""], least: Float[Array, ""] | None) -> Float[Array, ""]:
    return jnp.sqrt(value if least is None else jnp.maximum(value, least))


def _triangular(lower: Float[Array, "n n"], block: int) -> Factor:
    size = len(lower)
    if size <= UNROLLED:
        return Leaf(lower, None)
    if size <= block:
        return Leaf(lower, _inverted(lower))
    half = (size + 1) // 2
    return Node(_triangular(lower[:half, :half], block), lower[half:, :half], _triangular(lower[half:, half:], block))


def _eliminated(matrix: Float[Array, "n n"], least: Float[Array, " n"] | None) -> Leaf:
    """One block: [M | I] eliminated row by row to [L' | L^-1]."""
    size = len(matrix)
    both = jnp.concatenate([matrix, jnp.eye(size, dtype=matrix.dtype)], axis=1)

    def eliminate(j: Array, done: Float[Array, "n k"]) -> Float[Array, "n k"]:
        column = jax.lax.dynamic_index_in_dim(done, j, 1, keepdims=False)
        row = jax.lax.dynamic_index_in_dim(both, j, 0, keepdims=False) - column @ done
        return jax.lax.dynamic_update_index_in_dim(
            done, row / _pivot(row[j], None if least is None else least[j]), j, 0
        )

    done = jax.lax.fori_loop(0, size, eliminate, jnp.zeros_like(both))
    return Leaf(jnp.tril(done[:, :size].T), done[:, size:])


def _inverted(lower: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """L^-1 of one block, row by row."""
    identity = jnp.eye(len(lower), dtype=lower.dtype)

    def substitute(j: Array, done: Float[Array, "n n"]) -> Float[Array, "n n"]:
        row, unit = (jax.lax.dynamic_index_in_dim(each, j, 0, keepdims=False) for each in (lower, identity))
        return jax.lax.dynamic_update_index_in_dim(done, (unit - row @ done) / row[j], j, 0)

    return jax.lax.fori_loop(0, len(lower), substitute, jnp.zeros_like(lower))


def _unrolled(matrix: Float[Array, "n n"], least: Float[Array, " n"] | None) -> Float[Array, "n n"]:
    columns, rest = [], matrix
    while len(rest):
        column = rest[:, 0] / _pivot(rest[0, 0], None if least is None else least[len(columns)])
        columns.append(jnp.pad(column, (len(matrix) - len(rest), 0)))
        rest = rest[1:, 1:] - column[1:, None] * column[None, 1:]
    return jnp.stack(columns, axis=1)


def _substitute(lower: Float[Array, "n n"], right: Float[Array, "n *m"]) -> Float[Array, "n *m"]:
    solved: list[Array] = []
    for row, value in zip(lower, right, strict=True):
        known = sum((row[j] * solved[j] for j in range(len(solved))), jnp.zeros_like(value))
        solved.append((value - known) / row[len(solved)])
    return jnp.stack(solved)
