"""The streams that ship with the package, so that every command has something real to run on."""

from importlib.resources import files

import numpy as np


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Handwritten digits in scikit-learn's order: inputs (1797, 64) of 0..16 and labels (1797,), both uint8.

    >>> inputs, targets = digits()
    >>> inputs.shape, targets[:5].tolist()
    ((1797, 64), [0, 1, 2, 3, 4])
    """
    with (files("natkal.data") / "digits.npz").open("rb") as file, np.load(file) as arrays:
        return arrays["inputs"], arrays["targets"]


__all__ = ["digits"]
