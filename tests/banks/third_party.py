"""A learner that natkal does not know: the running mean and variance of its targets, with the seven methods only."""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm

import natkal as nk


@partial(jax.tree_util.register_dataclass, data_fields=["mean", "cov"], meta_fields=[])
@dataclasses.dataclass
class Normal:
    """One normal law, or a stack of them."""

    mean: jax.Array
    cov: jax.Array

    @property
    def centre(self):
        return self.mean[..., 0]

    @property
    def deviation(self):
        return jnp.sqrt(self.cov[..., 0, 0])

    @property
    def probabilities(self):
        raise ValueError("probabilities: a real number has no classes")

    def log_prob(self, y):
        return norm.logpdf(y, self.centre, self.deviation)

    def cdf(self, y):
        return norm.cdf(y, self.centre, self.deviation)

    def quantile(self, q):
        return norm.ppf(q, self.centre, self.deviation)

    def interval(self, level=0.9):
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def sample(self, key):
        return self.centre + self.deviation * jax.random.normal(key, self.centre.shape, self.centre.dtype)


class Moments(NamedTuple):
    count: jax.Array
    mean: jax.Array
    variance: jax.Array


class RunningMean:
    """Every target is normal around the mean of those before it."""

    def init(self, params=None, key=None):
        start = jnp.zeros(()) if params is None else jnp.asarray(params)
        if start.shape != ():
            raise ValueError(f"params: must be one number, got shape {start.shape}")
        return Moments(count=jnp.ones_like(start), mean=start, variance=jnp.ones_like(start))

    def predict(self, state, inputs):
        return Normal(mean=state.mean[None], cov=(state.variance * (1 + 1 / state.count))[None, None])

    def step(self, state, inputs, target):
        prediction = self.predict(state, inputs)
        present = ~jnp.isnan(target)
        count = state.count + 1
        away = target - state.mean
        after = Moments(
            count=count,
            mean=state.mean + away / count,
            variance=state.variance + (away * away * (1 - 1 / count) - state.variance) / count,
        )
        state = jax.tree.map(lambda new, old: jnp.where(present, new, old), after, state)
        log_prob = jnp.where(present, prediction.log_prob(target), 0.0)
        return state, nk.StepInfo(log_prob=log_prob, prediction=prediction, observed=present)

    def restart(self, state):
        return state

    def forecast(self, state, inputs, horizon, feed=None):
        return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], horizon, axis=0), self.predict(state, None))

    def sample(self, state, key):
        return state.mean + jnp.sqrt(state.variance / state.count) * jax.random.normal(key, (), state.mean.dtype)

    def covariance(self, state):
        return (state.variance / state.count)[None, None]
