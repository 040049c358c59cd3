"""A member's own law and no other: that of a filter, or of a learner that natkal does not know.

Of a Gaussian it is exact: y ~ N(mean, R + A P A'), so that the weights of linear members are their posterior
probabilities. Of other families it is the plug-in law, whose quantiles alone know of P.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natkal import linalg
from natkal.engine.distributions import matched_cdf
from natkal.families import Family, Gaussian
from natkal.families.base import Event
from natkal.laws.base import Memoryless, Moments
from natkal.laws.student import present_entries
from natkal.typing import Array, Float

LOG_2PI = math.log(2 * math.pi)


class OwnLaw(NamedTuple):
    """A filter's own law: natural parameters, and the moments that parameter uncertainty makes wider."""

    natural: Float[Array, " k"]
    moments: Moments


@dataclasses.dataclass(frozen=True)
class PlugIn(Memoryless):
    """The filter's own law and no other; quantiles are those of the law with its mean and covariance."""

    family: Family
    count = 1

    def needed(self, prediction: Any) -> Any:
        """Natural parameters and moments."""
        cov = None if self.family.support == "classes" else prediction.cov
        if cov is None and self.family.support != "classes":
            cov = self.family.cov(prediction.natural)
        return OwnLaw(natural=prediction.natural, moments=Moments(mean=prediction.mean, cov=cov))

    def laws(self, memory: tuple[()], prediction: Any, ahead: Any = 0) -> Any:
        """One."""
        return jax.tree.map(lambda leaf: leaf[None], prediction)

    def log_prob(self, law: OwnLaw, y: Event) -> Float[Array, ""]:
        """Log N(y; mean, R + A P A') of a Gaussian, else the family's."""
        if not isinstance(self.family, Gaussian):
            return self.family.log_prob(law.natural, y)
        assert law.moments.cov is not None
        residual, cov, present = present_entries(law.moments.mean, law.moments.cov, y)
        root = linalg.cholesky(cov)
        square = jnp.sum(jnp.square(root.whiten(residual)))
        return -0.5 * (square + jnp.sum(present) * LOG_2PI) - jnp.sum(jnp.log(root.diagonal()))

    def moments(self, law: OwnLaw) -> Moments:
        """Noise and parameter uncertainty together."""
        return law.moments

    def cdf(self, law: OwnLaw, y: Array) -> Array:
        """That of the law with these moments."""
        assert law.moments.cov is not None
        mean, variance = law.moments.mean, jnp.diagonal(law.moments.cov)
        shape = jnp.shape(y)
        return matched_cdf(self.family.support, jnp.reshape(mean, shape), jnp.reshape(variance, shape), y)

    def sample(self, law: OwnLaw, key: Array) -> Array:
        """Normal with these moments of a Gaussian, else the family's."""
        if not isinstance(self.family, Gaussian):
            return self.family.sample(key, law.natural)
        assert law.moments.cov is not None
        noise = jax.random.normal(key, law.moments.mean.shape, law.moments.mean.dtype)
        drawn = law.moments.mean + linalg.semidefinite(law.moments.cov).triangle() @ noise
        return jnp.reshape(drawn, self.family.event_shape)


@dataclasses.dataclass(frozen=True)
class OwnPrediction(PlugIn):
    """The member's own law and no other. A prediction without natural parameters is kept whole and asked itself."""

    def needed(self, prediction: Any) -> Any:
        """Natural parameters and moments, or all of it."""
        return super().needed(prediction) if hasattr(prediction, "natural") else prediction

    def log_prob(self, law: Any, y: Event) -> Float[Array, ""]:
        """The prediction's."""
        return super().log_prob(law, y) if isinstance(law, OwnLaw) else law.log_prob(y)

    def moments(self, law: Any) -> Moments:
        """The prediction's; of classes, the covariance follows from the mean."""
        if isinstance(law, OwnLaw):
            return super().moments(law)
        follows = self.family.support == "classes"
        return Moments(mean=law.mean, cov=None if follows else law.cov)

    def cdf(self, law: Any, y: Array) -> Array:
        """The prediction's."""
        return super().cdf(law, y) if isinstance(law, OwnLaw) else law.cdf(y)

    def sample(self, law: Any, key: Array) -> Array:
        """The prediction's."""
        return super().sample(law, key) if isinstance(law, OwnLaw) else law.sample(key)
