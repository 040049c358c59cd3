"""The Appendix's last formula: the natural gradient of an expectation, in mean parameters, is Cov(f, T)."""

from collections.abc import Callable
from typing import Any

import jax

from natkal.families.base import Family
from natkal.paper.fisher import fisher_of_mean, probabilities
from natkal.paper.solve import solve
from natkal.typing import Array, Float, Num


def expectation(
    family: Family, mean: Float[Array, " k"], f: Callable[[Any], Array], support: Num[Array, "n ..."]
) -> Float[Array, ""]:
    """E f(y) under p(y | Tbar = mean), a sum over a finite support."""
    return probabilities(family, family.natural(mean), support) @ jax.vmap(f)(support)


def natural_gradient_of_expectation(
    family: Family, mean: Float[Array, " k"], f: Callable[[Any], Array], support: Num[Array, "n ..."]
) -> Float[Array, " k"]:
    """The definition: J_Tbar^-1 (dE f / dTbar)'."""
    gradient = jax.grad(expectation, argnums=1)(family, mean, f, support)
    return solve(fisher_of_mean(family, mean), gradient)


def covariance_with_statistic(
    family: Family, mean: Float[Array, " k"], f: Callable[[Any], Array], support: Num[Array, "n ..."]
) -> Float[Array, " k"]:
    """The formula: Cov(f, T) = E[f(y) (T(y) - Tbar)], a sum over a finite support."""
    weights = probabilities(family, family.natural(mean), support)
    statistics = jax.vmap(family.sufficient_statistic)(support)
    return (weights * jax.vmap(f)(support)) @ (statistics - mean[None, :])


def empirical_covariance(values: Float[Array, " n"], statistics: Float[Array, "n k"]) -> Float[Array, " k"]:
    """Cov(f, T) from samples f(y_i), T(y_i): an estimate that needs no model (both centred, divided by n - 1)."""
    centred = statistics - statistics.mean(axis=0, keepdims=True)
    return (values - values.mean()) @ centred / (values.shape[0] - 1)
