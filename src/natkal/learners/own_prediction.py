"""The law of a member that is not one of natkal's filters: its own prediction, whatever that is made of."""

import dataclasses
from typing import Any

from natkal.families.base import Event
from natkal.learners.predictive import Moments, OwnLaw, PlugIn
from natkal.typing import Array, Float


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
