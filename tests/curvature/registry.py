"""Every curvature with its definition in plain NumPy. A new structure is one line here and inherits every check."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

import natkal as nk
from natkal.curvature import Curvature


class Observed(NamedTuple):
    """One observation for a reference: covariance before, and what came."""

    cov: np.ndarray
    rows: np.ndarray
    factor: np.ndarray
    push: np.ndarray
    keep: float
    restore: float
    prior_cov: np.ndarray
    offset: np.ndarray


def exact_update(seen: Observed) -> tuple[np.ndarray, np.ndarray]:
    """Lambda <- keep Lambda + restore Lambda_0 + V V', literally, with inverses: covariance and step."""
    root = seen.rows.T @ seen.factor
    prior_precision = np.linalg.inv(seen.prior_cov)
    precision = seen.keep * np.linalg.inv(seen.cov) + seen.restore * prior_precision + root @ root.T
    gradient = seen.rows.T @ seen.push - seen.restore * prior_precision @ seen.offset
    return np.linalg.inv(precision), np.linalg.solve(precision, gradient)


class Entry(NamedTuple):
    """A curvature for p parameters, and what its update must equal."""

    name: str
    build: Callable[[int], Curvature]
    reference: Callable[[Observed], tuple[np.ndarray, np.ndarray]]
    float64: bool = False


REGISTRY = [
    Entry("dense", lambda size: nk.dense(prior_directions=size), exact_update),
    Entry("square_root", lambda size: nk.square_root(prior_directions=size), exact_update),
    Entry("information", lambda size: nk.information(), exact_update, float64=True),
]


def entries() -> list:
    """The registry as pytest parameters; those that need float64 are left out of the float32 pass."""
    marks = {True: [pytest.mark.float64], False: []}
    return [pytest.param(entry, id=entry.name, marks=marks[entry.float64]) for entry in REGISTRY]
