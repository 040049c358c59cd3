"""Small networks on 8 x 8 images: each is `make(rng) -> (params, apply)`, first weights of variance 2/fan-in."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Network = tuple[Any, Callable[[Any, Any], Any]]


def affine(rng: np.random.Generator, inputs: int, outputs: int, gain: float = 2.0) -> dict[str, np.ndarray]:
    return {"weight": rng.normal(size=(inputs, outputs)) * np.sqrt(gain / inputs), "bias": np.zeros(outputs)}


def through(layer: Any, x: Any) -> Any:
    return x @ layer["weight"] + layer["bias"]


def coarse(image: Any) -> Any:
    """The image as 4 x 4 means."""
    return image.reshape(4, 2, 4, 2).mean(axis=(1, 3)).reshape(-1)


def mlp(rng: np.random.Generator, hidden: tuple[int, ...]) -> Network:
    params = [affine(rng, *pair) for pair in itertools.pairwise((16, *hidden, 10))]

    def apply(params, image):
        x = coarse(image)
        for layer in params[:-1]:
            x = jax.nn.relu(through(layer, x))
        return through(params[-1], x)

    return params, apply


def convolutions(rng: np.random.Generator) -> Network:
    """LeNet in small: two convolutions with pooling, two dense layers."""
    params = {
        "first": {"weight": rng.normal(size=(3, 3, 1, 6)) * np.sqrt(2 / 9), "bias": np.zeros(6)},
        "second": {"weight": rng.normal(size=(3, 3, 6, 8)) * np.sqrt(2 / 54), "bias": np.zeros(8)},
        "third": affine(rng, 32, 20),
        "fourth": affine(rng, 20, 10),
    }

    def convolved(layer, x):
        y = jax.lax.conv_general_dilated(
            x[None], layer["weight"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        y = jax.nn.relu(y[0] + layer["bias"][None, None])
        return y.reshape(y.shape[0] // 2, 2, y.shape[1] // 2, 2, -1).max(axis=(1, 3))

    def apply(params, image):
        x = convolved(params["second"], convolved(params["first"], image[:, :, None]))
        return through(params["fourth"], jax.nn.relu(through(params["third"], x.reshape(-1))))

    return params, apply


def residual(rng: np.random.Generator) -> Network:
    params = {
        "in": affine(rng, 16, 12),
        "blocks": [[affine(rng, 12, 12), affine(rng, 12, 12, 0.5)] for _ in range(3)],
        "out": affine(rng, 12, 10),
    }

    def apply(params, image):
        x = jax.nn.relu(through(params["in"], coarse(image)))
        for first, second in params["blocks"]:
            x = x + through(second, jax.nn.relu(through(first, x)))
        return through(params["out"], x)

    return params, apply


def attention(rng: np.random.Generator) -> Network:
    """One block with layer norm over the eight rows of the image, as tokens of 12 numbers."""
    width = 12
    names = ("embed", "query", "key", "value", "mix", "up", "down", "out")
    shapes = ((8, width), *[(width, width)] * 4, (width, 2 * width), (2 * width, width), (width, 10))
    params: dict[str, Any] = {name: affine(rng, *shape, 1.0) for name, shape in zip(names, shapes, strict=True)}
    params["place"] = 0.1 * rng.normal(size=(8, width))

    def normed(x):
        return (x - x.mean(axis=-1, keepdims=True)) / jnp.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)

    def apply(params, image):
        x = through(params["embed"], image) + params["place"]
        y = normed(x)
        query, key, value = (through(params[name], y) for name in ("query", "key", "value"))
        x = x + through(params["mix"], jax.nn.softmax(query @ key.T / np.sqrt(width)) @ value)
        x = x + through(params["down"], jax.nn.relu(through(params["up"], normed(x))))
        return through(params["out"], normed(x).mean(axis=0))

    return params, apply


def gru(rng: np.random.Generator) -> Network:
    """A gated recurrent cell of 12 units over the eight rows of the image."""
    width = 12
    params = {name: affine(rng, 8 + width, width, 1.0) for name in ("update", "reset", "state")}
    params["out"] = affine(rng, width, 10, 1.0)

    def apply(params, image):
        def cell(h, row):
            both = jnp.concatenate([row, h])
            update, reset = (jax.nn.sigmoid(through(params[name], both)) for name in ("update", "reset"))
            new = jnp.tanh(through(params["state"], jnp.concatenate([row, reset * h])))
            return (1 - update) * h + update * new, None

        return through(params["out"], jax.lax.scan(cell, jnp.zeros(width, image.dtype), image)[0])

    return params, apply


NETWORKS: dict[str, Callable[[np.random.Generator], Network]] = {
    "mlp of 1": lambda rng: mlp(rng, (24,)),
    "mlp of 4": lambda rng: mlp(rng, (16,) * 4),
    "mlp of 8": lambda rng: mlp(rng, (12,) * 8),
    "convolutions": convolutions,
    "residual": residual,
    "attention": attention,
    "gru": gru,
}
