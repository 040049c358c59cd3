"""What an observation is: exponential families (Appendix of the paper)."""

from natkal.families.base import Family
from natkal.families.binary import Bernoulli, Binomial
from natkal.families.categorical import Categorical, Multinomial
from natkal.families.coordinates import in_natural_coordinates
from natkal.families.counts import NegativeBinomial, Poisson
from natkal.families.custom import from_log_partition
from natkal.families.gaussian import Gaussian, GaussianUnknownVariance
from natkal.families.positive import Exponential, Gamma
from natkal.families.product import Product
from natkal.families.weighted import Weighted

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Exponential",
    "Family",
    "Gamma",
    "Gaussian",
    "GaussianUnknownVariance",
    "Multinomial",
    "NegativeBinomial",
    "Poisson",
    "Product",
    "Weighted",
    "from_log_partition",
    "in_natural_coordinates",
]
