"""The same filter in other libraries: `make(model, inputs, targets)` returns a call that runs through all rows.

One output with unit noise, prior variance 0.1, parameters that stand still; each library is used as documented, in the
precision of the inputs where it lets one choose (filterpy and river compute in float64).
A library that is not installed raises ImportError and is left out.
"""
# pyright: reportMissingImports=false, reportArgumentType=false, reportOptionalSubscript=false

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.models import ravel

PRIOR_VARIANCE = 0.1


def _mean(model: Any) -> Callable[[Any, Any], Any]:
    return lambda theta, inputs: model.mean(model.unravel(theta), inputs)


def dynamax(model: Any, inputs: np.ndarray, targets: np.ndarray) -> Callable[[], Any]:
    """`extended_kalman_filter` over a state that does not move."""
    from dynamax.nonlinear_gaussian_ssm import ParamsNLGSSM, extended_kalman_filter

    theta, mean = ravel(model.params), _mean(model)
    params = ParamsNLGSSM(
        initial_mean=theta,
        initial_covariance=PRIOR_VARIANCE * jnp.eye(len(theta)),
        dynamics_function=lambda theta, inputs: theta,
        dynamics_covariance=jnp.zeros((len(theta), len(theta))),
        emission_function=mean,
        emission_covariance=jnp.eye(1),
    )
    filtered = jax.jit(
        lambda targets, inputs: extended_kalman_filter(
            params, targets, inputs=inputs, output_fields=["filtered_means"]
        ).filtered_means[-1]
    )
    return lambda: filtered(targets[:, None], inputs)


def cuthbert(model: Any, inputs: np.ndarray, targets: np.ndarray) -> Callable[[], Any]:
    """Moment linearisation (square-root form), one row after the other."""
    import cuthbert as library
    from cuthbert.gaussian import moments

    theta, mean = ravel(model.params), _mean(model)
    size = len(theta)

    def dynamics(state: Any, row: Any) -> Any:
        return (lambda theta: (theta, jnp.zeros((size, size)))), state.mean

    def observation(state: Any, row: Any) -> Any:
        return (lambda theta: (mean(theta, row[0]), jnp.eye(1))), state.mean, row[1][None]

    built = moments.build_filter(theta, jnp.sqrt(PRIOR_VARIANCE) * jnp.eye(size), dynamics, observation)
    rows = (jnp.asarray(inputs), jnp.asarray(targets))

    filtered = jax.jit(lambda rows: library.filter(built, rows, built.init_prepare()).mean[-1])
    return lambda: filtered(rows)


def filterpy(model: Any, inputs: np.ndarray, targets: np.ndarray) -> Callable[[], Any]:
    """`ExtendedKalmanFilter.update` in a Python loop, with compiled mean and Jacobian."""
    from filterpy.kalman import ExtendedKalmanFilter

    mean = _mean(model)
    value = jax.jit(mean)
    jacobian = jax.jit(jax.jacrev(mean))

    def run() -> Any:
        ekf = ExtendedKalmanFilter(dim_x=model.size, dim_z=1)
        ekf.x = np.array(ravel(model.params))
        ekf.P = PRIOR_VARIANCE * np.eye(model.size)
        ekf.R = np.eye(1)
        for row, target in zip(inputs, targets, strict=True):
            ekf.update(
                np.array([target]),
                HJacobian=lambda x, row=row: np.asarray(jacobian(x, row)),
                Hx=lambda x, row=row: np.asarray(value(x, row)),
            )
        return ekf.x

    return run


def posteriors(model: Any, inputs: np.ndarray, targets: np.ndarray) -> Callable[[], Any]:
    """`ekf.dense_fisher` on a torch network with the same weights.

    Its precision loses the Fisher matrix instead of gaining it, and at lr = 1 is no longer positive after a few rows of
    this network; a small lr costs the same time.
    """
    import torch
    from posteriors import ekf

    rows = torch.tensor(inputs), torch.tensor(targets)
    params = {
        f"{number}.{name}": torch.tensor(np.array(leaf))
        for number, layer in enumerate(model.params)
        for name, leaf in layer.items()
    }

    def log_likelihood(params: Any, batch: Any) -> Any:
        hidden = torch.tanh(batch[0] @ params["0.weight"] + params["0.bias"])
        mean = (hidden @ params["1.weight"] + params["1.bias"])[:, 0]
        return -0.5 * (batch[1] - mean) ** 2, mean

    transform = ekf.dense_fisher.build(log_likelihood, lr=1e-6, per_sample=True, init_cov=PRIOR_VARIANCE)

    def run() -> Any:
        state = transform.init(params)
        for row in range(len(targets)):
            state, _ = transform.update(state, (rows[0][row : row + 1], rows[1][row : row + 1]))
        return np.asarray(state.params["0.weight"])

    return run


def river(inputs: np.ndarray, targets: np.ndarray) -> Callable[[], Any]:
    """`BayesianLinearRegression`: predict, then learn. It keeps a full covariance; for networks river has no filter."""
    from river import linear_model

    rows = [dict(enumerate(row)) for row in inputs.tolist()]

    def run() -> Any:
        regression = linear_model.BayesianLinearRegression(alpha=1 / PRIOR_VARIANCE, beta=1.0)
        expected = 0.0
        for row, target in zip(rows, targets.tolist(), strict=True):
            expected = regression.predict_one(row)
            regression.learn_one(row, target)
        return np.asarray(expected)

    return run


class Peer(NamedTuple):
    """A library, and the most parameters it is asked to do: beyond, a step takes many seconds."""

    make: Callable[[Any, np.ndarray, np.ndarray], Callable[[], Any]]
    most: int


PEERS = {
    "dynamax": Peer(make=dynamax, most=6_001),
    "cuthbert": Peer(make=cuthbert, most=1_000),
    "filterpy": Peer(make=filterpy, most=1_000),
    "posteriors": Peer(make=posteriors, most=1_000),
}
