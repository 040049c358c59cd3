"""Every curvature with its definition in plain NumPy. A new structure is one line here and inherits every check."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import pytest

import natkal as nk
from natkal.curvature import Curvature
from natkal.curvature.kernels import native

# Two layers, 3-2-1: the parameters of unit j are column j of the weight and entry j of the bias.
LAYOUT = (("[0]['bias']", (2,)), ("[0]['weight']", (3, 2)), ("[1]['bias']", (1,)), ("[1]['weight']", (2, 1)))
P = 11
LAYERS = [range(8), range(8, 11)]
NEURONS = [[2, 4, 6, 0], [3, 5, 7, 1], [9, 10, 8]]  # bias last
MATRICES = [np.array([[2, 3], [4, 5], [6, 7], [0, 1]]), np.array([[9], [10], [8]])]  # (inputs, units)


class Observed(NamedTuple):
    """One observation for a reference."""

    rows: np.ndarray
    factor: np.ndarray
    push: np.ndarray
    keep: float
    restore: float
    offset: np.ndarray


class Reference(Protocol):
    """A filter in NumPy: the covariance it starts with, and what an observation makes of it."""

    cov: np.ndarray

    def update(self, seen: Observed) -> np.ndarray:
        """Learn, and return the step."""
        ...


class Projected:
    """Condition exactly, then project the precision (or the covariance), with inverses, literally.

    Lambda_- = project(keep Lambda + restore Lambda_0); step = (Lambda_- + V V')^-1 (rows' e - restore Lambda_0 offset);
    Lambda = project(Lambda_- + V V').
    """

    def __init__(self, prior_cov: np.ndarray, project: Callable[[np.ndarray], np.ndarray], *, covariance: bool) -> None:
        self.project = project
        self.covariance = covariance
        self.prior_precision = self.projected(np.linalg.inv(prior_cov))
        self.precision = self.prior_precision

    def projected(self, precision: np.ndarray) -> np.ndarray:
        if self.covariance:
            return np.linalg.inv(self.project(np.linalg.inv(precision)))
        return self.project(precision)

    @property
    def cov(self) -> np.ndarray:
        return np.linalg.inv(self.precision)

    def update(self, seen: Observed) -> np.ndarray:
        root = seen.rows.T @ seen.factor
        full = self.projected(seen.keep * self.precision + seen.restore * self.prior_precision) + root @ root.T
        gradient = seen.rows.T @ seen.push - seen.restore * self.prior_precision @ seen.offset
        self.precision = self.projected(full)
        return np.linalg.solve(full, gradient)


class DiagonalPlusLowRank:
    """Lambda = D + M; of M + V V' the `rank` largest eigenvalues relative to D stay, the rest's diagonal joins D."""

    def __init__(self, prior_cov: np.ndarray, rank: int) -> None:
        self.rank = rank
        self.prior_diagonal = np.diag(np.linalg.inv(prior_cov))
        self.diagonal, self.low = self.prior_diagonal, np.zeros((P, P))

    @property
    def cov(self) -> np.ndarray:
        return np.linalg.inv(np.diag(self.diagonal) + self.low)

    def update(self, seen: Observed) -> np.ndarray:
        diagonal = seen.keep * self.diagonal + seen.restore * self.prior_diagonal
        root = seen.rows.T @ seen.factor
        low = seen.keep * self.low + root @ root.T
        scale = np.sqrt(np.outer(diagonal, diagonal))
        values, vectors = np.linalg.eigh(low / scale)
        kept = (vectors[:, -self.rank :] * values[-self.rank :]) @ vectors[:, -self.rank :].T * scale
        gradient = seen.rows.T @ seen.push - seen.restore * self.prior_diagonal * seen.offset
        self.diagonal, self.low = diagonal + np.diag(low - kept), kept
        return np.linalg.solve(np.diag(diagonal) + low, gradient)


def block_diagonal(groups) -> Callable[[np.ndarray], np.ndarray]:
    def project(matrix: np.ndarray) -> np.ndarray:
        kept = np.zeros_like(matrix)
        for group in groups:
            index = np.ix_(list(group), list(group))
            kept[index] = matrix[index]
        return kept

    return project


def quasi_diagonal(matrix: np.ndarray) -> np.ndarray:
    """Each unit's diagonal and bias row, completed by b_i b_j / c."""
    kept = np.zeros_like(matrix)
    for *weights, bias in NEURONS:
        row, corner = matrix[weights, bias], matrix[bias, bias]
        kept[np.ix_(weights, weights)] = np.outer(row, row) / corner
        kept[weights, weights] = matrix[weights, weights]
        kept[weights, bias] = kept[bias, weights] = row
        kept[bias, bias] = corner
    return kept


def kronecker(matrix: np.ndarray) -> np.ndarray:
    """Each layer's partial traces, multiplied."""
    kept = np.zeros_like(matrix)
    for index in MATRICES:
        block = matrix[np.ix_(index.ravel(), index.ravel())].reshape(*index.shape, *index.shape)
        left, right = np.trace(block, axis1=1, axis2=3), np.trace(block, axis1=0, axis2=2)
        kept[np.ix_(index.ravel(), index.ravel())] = np.kron(left, right) / np.trace(left)
    return kept


def mixed(matrix: np.ndarray) -> np.ndarray:
    """The first layer's diagonal, the second layer in full."""
    kept = block_diagonal(LAYERS)(matrix)
    kept[:8, :8] = np.diag(np.diag(matrix)[:8])
    return kept


class Entry(NamedTuple):
    """A curvature, and the filter it must equal, from its prior covariance on."""

    name: str
    build: Callable[[], Curvature]
    reference: Callable[[np.ndarray], Reference]
    float64: bool = False


def projected(
    project: Callable[[np.ndarray], np.ndarray], *, covariance: bool = False
) -> Callable[[np.ndarray], Reference]:
    return lambda prior_cov: Projected(prior_cov, project, covariance=covariance)


IDENTITY = block_diagonal([range(P)])
DIAGONAL = block_diagonal([[index] for index in range(P)])
REGISTRY = [
    Entry("dense", lambda: nk.dense(prior_directions=P), projected(lambda matrix: matrix)),
    *[
        Entry(f"dense {kernel}", lambda kernel=kernel: nk.dense(prior_directions=P, kernel=kernel), projected(IDENTITY))
        for kernel in ("deferred", *(["cpu", "batch"] if native.available() else []))
    ],
    Entry("square root", lambda: nk.square_root(prior_directions=P), projected(IDENTITY)),
    Entry("square root deferred", lambda: nk.square_root(prior_directions=P, kernel="deferred"), projected(IDENTITY)),
    Entry("information", nk.information, projected(lambda matrix: matrix), float64=True),
    Entry("diagonal", lambda: nk.diagonal(), projected(DIAGONAL)),
    Entry("diagonal decoupled", lambda: nk.diagonal(decoupled=True), projected(DIAGONAL, covariance=True)),
    Entry("blocks by neuron", lambda: nk.blocks(by="neuron"), projected(block_diagonal(NEURONS))),
    Entry(
        "blocks by neuron decoupled",
        lambda: nk.blocks(by="neuron", decoupled=True),
        projected(block_diagonal(NEURONS), covariance=True),
    ),
    Entry(
        "blocks by unit",
        lambda: nk.blocks(by="unit"),
        projected(block_diagonal([[0, 2, 4, 6, 9], [1, 3, 5, 7, 10], [8]])),
    ),
    Entry("blocks by layer", lambda: nk.blocks(by="layer"), projected(block_diagonal(LAYERS))),
    Entry(
        "blocks by function",
        lambda: nk.blocks(by=lambda path: "bias" in path),
        projected(block_diagonal([[0, 1, 8], [2, 3, 4, 5, 6, 7, 9, 10]])),
    ),
    Entry("one block", lambda: nk.blocks(by=lambda path: 0), projected(lambda matrix: matrix)),
    Entry("quasi-diagonal", nk.quasi_diagonal, projected(quasi_diagonal)),
    Entry("kronecker", lambda: nk.kronecker(), projected(kronecker)),
    Entry("low rank", lambda: nk.low_rank(3), lambda prior_cov: DiagonalPlusLowRank(prior_cov, 3)),
    Entry(
        "mixed",
        lambda: nk.mixed({"[1]*": nk.dense(prior_directions=3), "*": nk.diagonal()}),
        projected(mixed),
    ),
    Entry(
        "mixed decoupled",
        lambda: nk.mixed({"[1]*": nk.dense(prior_directions=3), "*": nk.diagonal(decoupled=True)}, decoupled=True),
        projected(mixed, covariance=True),
    ),
]


def entries(*, float32: bool = False) -> list:
    """The registry as pytest parameters; those that need float64 are left out of the float32 pass, or of all."""
    marks = {True: [pytest.mark.float64], False: []}
    return [
        pytest.param(entry, id=entry.name, marks=marks[entry.float64])
        for entry in REGISTRY
        if not (float32 and entry.float64)
    ]
