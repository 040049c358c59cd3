"""Rows of one layer under its Kronecker factors: outer products y x', known or found to be, and any other matrices."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from natkal import linalg
from natkal.curvature.innovation import correction
from natkal.curvature.projected import FEW, combine, inner_products, outer_products, squares
from natkal.rows import Outer
from natkal.typing import Array, Bool, Float


class Factors(NamedTuple):
    """Lambda = scale (A x D) / trace on one layer, A over its inputs and D over its units, tr A = tr D = trace.

    `left` is A^-1 and `right` is D^-1.
    """

    left: Float[Array, "n n"]
    right: Float[Array, "u u"]
    trace: Float[Array, ""]
    scale: Float[Array, ""]


class Thin(NamedTuple):
    """Rows of one layer as outer products y x', where `holds`; elsewhere y and x mean nothing."""

    holds: Bool[Array, ""]
    left: Float[Array, "m n"]
    right: Float[Array, "m u"]


class Images(NamedTuple):
    """Their gram matrix, and A^-1 y and D^-1 x of outer products y x' (zero for other rows)."""

    gram: Float[Array, "m m"]
    left: Float[Array, "m n"]
    right: Float[Array, "m u"]


class Tested(NamedTuple):
    """Rows that come as matrices: outer products or not, as the numbers say."""

    thin: Thin
    images: Images
    stack: Float[Array, "m n u"]

    @property
    def gram(self) -> Float[Array, "m m"]:
        """Rows P rows'."""
        return self.images.gram

    def combined(self, own: Factors, weights: Float[Array, " m"]) -> Float[Array, "n u"]:
        """P rows' weights."""
        return jax.lax.cond(self.thin.holds, _thin_move, _full_move, own, self.images, self.stack, weights)

    def added(self, own: Factors, factor: Float[Array, "m r"]) -> Factors:
        """The factors with the Fisher matrix of the rows."""
        return jax.lax.cond(self.thin.holds, _thin_absorb, _full_absorb, own, *self, factor)


class Known(NamedTuple):
    """Rows y x_k' with one y, as an affine layer gives them: A^-1 y, y A^-1 y, and D^-1 x_k."""

    rows: Outer
    left: Float[Array, " n"]
    length: Float[Array, ""]
    right: Float[Array, "m u"]
    gram: Float[Array, "m m"]

    def combined(self, own: Factors, weights: Float[Array, " m"]) -> Float[Array, "n u"]:
        """P rows' weights: one outer product."""
        return self.left[:, None] * combine(weights * (own.trace / own.scale), self.right)[None, :]

    def added(self, own: Factors, factor: Float[Array, "m r"]) -> Factors:
        """A + t y y' with t = sum_r |sum_k F_kr x_k|^2, and D + (y . y) sum_r (sum_k F_kr x_k)^2."""
        inputs, deltas = self.rows.inputs, self.rows.deltas
        inner, total = inputs @ inputs, jnp.sum(squares(factor, deltas))
        # (s A + t y y')^-1 = A^-1 / s - A^-1 y y' A^-1 t / (s (s + t y A^-1 y))
        root = self.left * jnp.sqrt(total / (own.scale * (own.scale + total * self.length)))
        shrink = 1 / own.scale
        images = self.right * shrink
        turned = correction(inner_products(images, deltas), factor * jnp.sqrt(inner)) @ images
        return Factors(
            left=own.left * shrink - root[:, None] * root[None, :],
            right=own.right * shrink - outer_products(turned, turned),
            trace=own.scale * own.trace + inner * total,
            scale=jnp.ones_like(own.scale),
        )


def look_outer(own: Factors, rows: Outer) -> Known:
    """Rows that an affine layer gave, under its factors."""
    left, right = own.left @ rows.inputs, inner_products(rows.deltas, own.right)
    length = left @ rows.inputs
    gram = inner_products(right, rows.deltas) * (length * own.trace / own.scale)
    return Known(rows=rows, left=left, length=length, right=right, gram=gram)


def look_matrices(own: Factors, stack: Float[Array, "m n u"]) -> Tested:
    """Rows that come as matrices, under the factors."""
    thin = _thin(stack)
    return Tested(thin, jax.lax.cond(thin.holds, _thin_images, _full_images, own, thin, stack), stack)


def apply(own: Factors, matrix: Float[Array, "n u"]) -> Float[Array, "n u"]:
    """P on one layer."""
    return own.left @ matrix @ own.right * (own.trace / own.scale)


def _thin(stack: Float[Array, "m n u"]) -> Thin:
    """Each matrix M as an outer product y x', and whether all of them are: M z = y (x . z) for a random z.

    x is the row of M with the longest shadow on another random vector, y = M x / |x|^2.
    """
    count, _, units = stack.shape
    probes = jax.random.normal(jax.random.key(0), (units, 2), stack.dtype)
    shadows = stack @ probes
    longest = jnp.argmax(jnp.abs(shadows[..., 0]), axis=1)
    right = (
        jnp.stack([stack[k, longest[k]] for k in range(count)]) if count <= FEW else stack[jnp.arange(count), longest]
    )
    lengths = jnp.sum(jnp.square(right), axis=1)
    left = _each(stack, right) / jnp.where(lengths == 0, 1, lengths)[:, None]
    missed = jnp.max(jnp.abs(shadows[..., 1] - left * (right @ probes[:, 1])[:, None]), axis=1)
    tolerance = 1e3 * jnp.finfo(stack.dtype).eps
    return Thin(holds=jnp.all(missed <= tolerance * jnp.sqrt(lengths)), left=left, right=right)


def _each(stack: Float[Array, "m n u"], vectors: Float[Array, "m u"]) -> Float[Array, "m n"]:
    """M_k x_k for every k."""
    if len(stack) <= FEW:
        return jnp.stack([stack[k] @ vectors[k] for k in range(len(stack))])
    return jnp.einsum("mnu,mu->mn", stack, vectors)


def _thin_images(own: Factors, thin: Thin, stack: Array) -> Images:
    left, right = inner_products(thin.left, own.left), inner_products(thin.right, own.right)
    gram = (left @ thin.left.T) * (right @ thin.right.T) * (own.trace / own.scale)
    return Images(gram=gram, left=left, right=right)


def _full_images(own: Factors, thin: Thin, stack: Float[Array, "m n u"]) -> Images:
    images = jnp.einsum("ij,mju,uv->miv", own.left, stack, own.right)
    gram = jnp.einsum("miv,kiv->mk", images, stack) * (own.trace / own.scale)
    return Images(gram=gram, left=jnp.zeros_like(thin.left), right=jnp.zeros_like(thin.right))


def _thin_move(own: Factors, seen: Images, stack: Array, weights: Float[Array, " m"]) -> Float[Array, "n u"]:
    return outer_products(seen.left, seen.right * (weights * own.trace / own.scale)[:, None])


def _full_move(own: Factors, seen: Images, stack: Float[Array, "m n u"], weights: Array) -> Float[Array, "n u"]:
    return apply(own, combine(weights, stack))


def _thin_absorb(own: Factors, thin: Thin, seen: Images, stack: Array, factor: Float[Array, "m r"]) -> Factors:
    """V_r = sum_k F_kr y_k x_k', so sum_r V_r V_r' = Y' [(F F') o (X X')] Y: a rank-m correction of A^-1."""
    fisher = factor @ factor.T
    left_inner, right_inner = inner_products(thin.left, thin.left), inner_products(thin.right, thin.right)
    return Factors(
        left=_corrected(own.left, own.scale, thin.left, seen.left, _root(fisher * right_inner)),
        right=_corrected(own.right, own.scale, thin.right, seen.right, _root(fisher * left_inner)),
        trace=own.scale * own.trace + jnp.sum(fisher * left_inner * right_inner),
        scale=jnp.ones_like(own.scale),
    )


def _root(weight: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """F with F F' = weight."""
    return linalg.semidefinite(weight).triangle()


def _corrected(
    inverse: Float[Array, "n n"],
    scale: Float[Array, ""],
    rows: Float[Array, "m n"],
    images: Float[Array, "m n"],
    root: Float[Array, "m r"],
) -> Float[Array, "n n"]:
    """(scale M + rows' F F' rows)^-1 for F = root, given M^-1 and images = rows M^-1."""
    turned = correction(images @ rows.T / scale, root) @ images / scale
    return inverse / scale - outer_products(turned, turned)


def _full_absorb(
    own: Factors, thin: Thin, seen: Images, stack: Float[Array, "m n u"], factor: Float[Array, "m r"]
) -> Factors:
    """A + sum_r V_r V_r' and D + sum_r V_r' V_r, each as a correction of its inverse.

    A factor is never inverted to be inverted again: in float32 that loses a part of about eps times its condition
    number at every observation, and nothing brings it back.
    """
    added = jnp.tensordot(factor.T, stack, axes=1)
    return Factors(
        left=_added(own.left, own.scale, added),
        right=_added(own.right, own.scale, jnp.swapaxes(added, 1, 2)),
        trace=own.scale * own.trace + jnp.sum(jnp.square(added)),
        scale=jnp.ones_like(own.scale),
    )


def _added(inverse: Float[Array, "n n"], scale: Float[Array, ""], added: Float[Array, "r n u"]) -> Float[Array, "n n"]:
    """(scale M + sum_r V_r V_r')^-1, given M^-1: a correction of rank r u, or of rank n where that is less."""
    size = len(inverse)
    columns = jnp.swapaxes(added, 1, 2).reshape(-1, size)
    if len(columns) < size:
        root = jnp.eye(len(columns), dtype=columns.dtype)
        return _corrected(inverse, scale, columns, columns @ inverse, root)
    return _corrected(inverse, scale, jnp.eye(size, dtype=inverse.dtype), inverse, _root(columns.T @ columns))
