"""NIST's nonlinear regression sets (StRD): the models, and a reader for their files."""

import re
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

FOLDER = Path(__file__).parent / "nist"


def chwirut(b, x):
    return jnp.exp(-b[0] * x) / (b[1] + b[2] * x)


def rational(numerator: int):
    """A ratio of two polynomials whose first denominator coefficient is 1."""

    def model(b, x):
        top = sum(b[i] * x**i for i in range(numerator))
        return top / (1 + sum(b[numerator + i] * x ** (i + 1) for i in range(len(b) - numerator)))

    return model


def gauss(b, x):
    peaks = b[2] * jnp.exp(-((x - b[3]) ** 2) / b[4] ** 2) + b[5] * jnp.exp(-((x - b[6]) ** 2) / b[7] ** 2)
    return b[0] * jnp.exp(-b[1] * x) + peaks


def lanczos(b, x):
    return b[0] * jnp.exp(-b[1] * x) + b[2] * jnp.exp(-b[3] * x) + b[4] * jnp.exp(-b[5] * x)


def enso(b, x):
    def wave(period, cosine, sine):
        return cosine * jnp.cos(2 * jnp.pi * x / period) + sine * jnp.sin(2 * jnp.pi * x / period)

    return b[0] + wave(12.0, b[1], b[2]) + wave(b[3], b[4], b[5]) + wave(b[6], b[7], b[8])


MODELS = {
    "Bennett5": lambda b, x: b[0] * (b[1] + x) ** (-1 / b[2]),
    "BoxBOD": lambda b, x: b[0] * (1 - jnp.exp(-b[1] * x)),
    "Chwirut1": chwirut,
    "Chwirut2": chwirut,
    "DanWood": lambda b, x: b[0] * x ** b[1],
    "ENSO": enso,
    "Eckerle4": lambda b, x: b[0] / b[1] * jnp.exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Gauss1": gauss,
    "Gauss2": gauss,
    "Gauss3": gauss,
    "Hahn1": rational(4),
    "Kirby2": rational(3),
    "Lanczos1": lanczos,
    "Lanczos2": lanczos,
    "Lanczos3": lanczos,
    "MGH09": lambda b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "MGH10": lambda b, x: b[0] * jnp.exp(b[1] / (x + b[2])),
    "MGH17": lambda b, x: b[0] + b[1] * jnp.exp(-x * b[3]) + b[2] * jnp.exp(-x * b[4]),
    "Misra1a": lambda b, x: b[0] * (1 - jnp.exp(-b[1] * x)),
    "Misra1b": lambda b, x: b[0] * (1 - (1 + b[1] * x / 2) ** -2),
    "Misra1c": lambda b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** -0.5),
    "Misra1d": lambda b, x: b[0] * b[1] * x / (1 + b[1] * x),
    "Nelson": lambda b, x: b[0] - b[1] * x[0] * jnp.exp(-b[2] * x[1]),
    "Rat42": lambda b, x: b[0] / (1 + jnp.exp(b[1] - b[2] * x)),
    "Rat43": lambda b, x: b[0] / (1 + jnp.exp(b[1] - b[2] * x)) ** (1 / b[3]),
    "Roszman1": lambda b, x: b[0] - b[1] * x - jnp.arctan(b[2] / (x - b[3])) / jnp.pi,
    "Thurber": rational(4),
}


class NistSet(NamedTuple):
    """A data set with its two starting points and its certified parameters; one predictor, or a row of them."""

    inputs: np.ndarray
    targets: np.ndarray
    far_start: np.ndarray
    start: np.ndarray
    certified: np.ndarray


def load(name: str) -> NistSet:
    lines = (FOLDER / f"{name}.dat").read_text().splitlines()
    params = [re.findall(r"[-+.\dEe]+", line.split("=")[1]) for line in lines if re.match(r"\s*b\d+\s*=", line)]
    table = np.array([line.split() for line in lines[60:] if line.strip()], float)
    return NistSet(
        inputs=table[:, 1] if table.shape[1] == 2 else table[:, 1:],
        targets=np.log(table[:, 0]) if name == "Nelson" else table[:, 0],  # Nelson's model is one of log y
        far_start=np.array([float(row[0]) for row in params]),
        start=np.array([float(row[1]) for row in params]),
        certified=np.array([float(row[2]) for row in params]),
    )
