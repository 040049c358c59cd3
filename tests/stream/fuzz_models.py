"""Random models of a user through `nk.run`: `python -m tests.stream.fuzz_models COUNT [FIRST]`.

A model is a chain of operations drawn from a list that has much of `jax.numpy` and `jax.lax`: those that natkal
compiles as one machine function, and those that XLA cannot compile that way. Each is learned by `nk.run` and by a loop
of plain jitted steps: both must tell the same log probabilities, or refuse the model with the same exception. A process
that ends is a failure, so this runs as a command of its own, which prints a line for each model that failed.
"""

import sys
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import natkal as nk

WIDTH, ROWS = 4, 12

Operation = Callable[[jax.Array, dict[str, jax.Array]], jax.Array]


@jax.custom_jvp
def _clipped(x: jax.Array) -> jax.Array:
    return jnp.clip(x, -1, 1)


@_clipped.defjvp
def _clipped_jvp(primals, tangents):
    return _clipped(*primals), tangents[0]


@jax.custom_vjp
def _halved(x: jax.Array) -> jax.Array:
    return x / 2


_halved.defvjp(lambda x: (x / 2, None), lambda rest, gradient: (gradient / 2,))


def _looped(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    return jax.lax.scan(lambda carry, row: (jnp.tanh(carry + row), carry[0]), x, w["matrix"])[0]


def _while(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda i, y: 0.5 * y + w["vector"] * i, x)


OPERATIONS: dict[str, Operation] = {
    "matrix": lambda x, w: w["matrix"] @ x,
    "shift": lambda x, w: x + w["vector"],
    "scale": lambda x, w: x * w["scalar"],
    "tanh": lambda x, w: jnp.tanh(x),
    "relu": lambda x, w: jax.nn.relu(x),
    "gelu": lambda x, w: jax.nn.gelu(x),
    "softplus": lambda x, w: jax.nn.softplus(x),
    "softmax": lambda x, w: jax.nn.softmax(x),
    "sin": lambda x, w: jnp.sin(x),
    "exp": lambda x, w: jnp.exp(jnp.minimum(x, 3.0)),
    "log": lambda x, w: jnp.log1p(jnp.abs(x)),
    "root": lambda x, w: jnp.sqrt(1e-3 + x * x),
    "erf": lambda x, w: jax.scipy.special.erf(x),
    "gamma": lambda x, w: jax.scipy.special.gammaln(1 + jnp.abs(x)),
    "sort": lambda x, w: jnp.sort(x),
    "top": lambda x, w: jnp.repeat(jax.lax.top_k(x, 2)[0], 2),
    "cumulative": lambda x, w: jnp.cumsum(x),
    "flip": lambda x, w: x[::-1],
    "roll": lambda x, w: jnp.roll(x, 1),
    "pick": lambda x, w: x[jnp.argmax(x)] + jnp.zeros_like(x),
    "scatter": lambda x, w: x.at[1].add(x[0]),
    "where": lambda x, w: jnp.where(x > 0, x, 0.1 * x),
    "branch": lambda x, w: jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
    "switch": lambda x, w: jax.lax.switch(jnp.argmin(x) % 2, [jnp.tanh, jnp.square], x),
    "scan": _looped,
    "loop": _while,
    "outer": lambda x, w: jnp.outer(x, w["vector"]).sum(axis=1),
    "convolve": lambda x, w: jnp.convolve(x, w["vector"], mode="same"),
    "window": lambda x, w: jax.lax.reduce_window(x, 0.0, jax.lax.add, (2,), (1,), "SAME"),
    "fourier": lambda x, w: jnp.real(jnp.fft.fft(x)),
    "inverse": lambda x, w: jnp.linalg.solve(jnp.eye(WIDTH) * 3 + 0.1 * w["matrix"], x),
    "cholesky": lambda x, w: jnp.linalg.cholesky(jnp.eye(WIDTH) + jnp.outer(x, x))[:, 0],
    "callback": lambda x, w: x + jax.lax.stop_gradient(jax.pure_callback(np.cos, x[0], x[0])),
    "rounded": lambda x, w: x + jax.lax.stop_gradient(jnp.round(x)),
    "integers": lambda x, w: x + (x > 0).astype(jnp.int32),
    "half": lambda x, w: x.astype(jnp.float16).astype(x.dtype),
    "norm": lambda x, w: (x - x.mean()) / jnp.sqrt(x.var() + 1e-3),
    "remat": lambda x, w: jax.checkpoint(jnp.sin)(x),
    "inner jit": lambda x, w: jax.jit(jnp.cos)(x),
    "mapped": lambda x, w: jax.vmap(lambda a, b: jnp.sin(a) * b)(x, w["vector"]),
    "own derivative": lambda x, w: _clipped(x),
    "own gradient": lambda x, w: _halved(x),
    "gradient": lambda x, w: jax.grad(lambda y: jnp.sum(jnp.sin(y) * w["vector"]))(x),
    "noise": lambda x, w: x + 0.1 * jax.random.normal(jax.random.key(0), x.shape),
    "divide": lambda x, w: x / w["scalar"],
    "nothing": lambda x, w: jnp.zeros_like(x),
}
FAMILIES = {
    "number": (lambda: nk.families.Gaussian(1.0), lambda x: x[0]),
    "class": (nk.families.Bernoulli, lambda x: x[0]),
    "classes": (lambda: nk.families.Categorical(WIDTH, minimal=False), lambda x: x),
    "count": (nk.families.Poisson, lambda x: jnp.clip(x[0], -5, 5)),
}
CURVATURES = (nk.dense, nk.diagonal, nk.blocks, nk.kronecker, lambda: nk.low_rank(3))


def check(seed: int) -> str:
    """Learn with random model `seed`; what went wrong, or nothing."""
    rng = np.random.default_rng(seed)
    names = [str(name) for name in rng.choice(list(OPERATIONS), size=rng.integers(2, 8))]
    family_name = str(rng.choice(list(FAMILIES)))
    family, head = FAMILIES[family_name]
    curvature = CURVATURES[rng.integers(len(CURVATURES))]()
    params = {
        "matrix": jnp.asarray(rng.normal(size=(WIDTH, WIDTH)) / 2),
        "vector": jnp.asarray(rng.normal(size=WIDTH) / 2),
        "scalar": jnp.asarray(rng.normal()),
    }
    inputs = rng.normal(size=(ROWS, WIDTH))
    targets = {
        "number": rng.normal(size=ROWS),
        "class": rng.integers(2, size=ROWS),
        "classes": rng.integers(WIDTH, size=ROWS),
        "count": rng.poisson(2.0, size=ROWS),
    }[family_name]

    def apply(w, u):
        x = w["matrix"] @ u
        for name in names:
            x = OPERATIONS[name](x, w)
        return head(x)

    def learned(way):
        try:
            learner = nk.online(nk.static_model(apply, params, family()), prior_cov=0.1, curvature=curvature)
            return np.asarray(way(learner)), ""
        except Exception as error:
            return np.zeros(0), type(error).__name__

    def by_steps(learner):
        state, told, step = learner.init(), [], jax.jit(learner.step)
        for row, target in zip(inputs, targets, strict=True):
            state, info = step(state, row, target)
            told.append(info.log_prob)
        return told

    ran, refused = learned(lambda learner: nk.run(learner, learner.init(), inputs, targets)[1].log_prob)
    stepped, also = learned(by_steps)
    what = f"model {seed} ({family_name}, {type(curvature).__name__}: {', '.join(names)})"
    if refused != also:
        return f"{what}: run says {refused or 'nothing'}, steps say {also or 'nothing'}"
    if not np.allclose(ran, stepped, rtol=1e-5, atol=1e-6, equal_nan=True):
        return f"{what}: run {ran[-3:]}, steps {stepped[-3:]}"
    return ""


def main() -> None:
    """Check COUNT models from seed FIRST on."""
    jax.config.update("jax_enable_x64", True)
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failed = [failure for seed in range(first, first + count) if (failure := check(seed))]
    print(*failed, f"{count} models, {len(failed)} failed", sep="\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
