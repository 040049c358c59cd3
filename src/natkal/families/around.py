"""A family seen through another: every question goes on to the one inside, unless it is answered on the way."""

import dataclasses

import numpy as np

from natkal.families.base import Event, Family, Natural, Observed, Raw, Support
from natkal.typing import Array, Bool, Float


@dataclasses.dataclass(frozen=True, eq=False)
class Around(Family):
    """`family` itself; a subclass answers what it sees differently, and says by `inner` which y the family sees."""

    family: Family

    def inner(self, y: Event) -> Event:
        """The family's own y."""
        return y

    @property
    def dim(self) -> int:
        """The family's own."""
        return self.family.dim

    @property
    def raw_dim(self) -> int:
        """The family's own."""
        return self.family.raw_dim

    @property
    def raw_sizes(self) -> tuple[int, ...]:
        """The family's own."""
        return self.family.raw_sizes

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The family's own."""
        return self.family.event_shape

    @property
    def support(self) -> Support:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The family's own."""
        return self.family.support

    @property
    def domain(self) -> str:
        """The family's own."""
        return self.family.domain

    def sufficient_statistic(self, y: Event) -> Natural:
        """T(y)."""
        return self.family.sufficient_statistic(self.inner(y))

    def log_partition(self, natural: Natural) -> Float[Array, ""]:
        """Log Z(nu)."""
        return self.family.log_partition(natural)

    def log_base(self, y: Event) -> Float[Array, ""]:
        """Log base(y)."""
        return self.family.log_base(self.inner(y))

    def class_probabilities(self, mean: Natural) -> Float[Array, " classes"]:
        """The family's own."""
        return self.family.class_probabilities(mean)

    def natural(self, mean: Natural) -> Natural:
        """The family's own."""
        return self.family.natural(mean)

    def sample(self, key: Array, natural: Natural) -> Event:
        """One draw."""
        return self.family.sample(key, natural)

    def mean(self, natural: Natural) -> Natural:
        """E[T(y)]."""
        return self.family.mean(natural)

    def cov(self, natural: Natural) -> Float[Array, "k k"]:
        """Cov[T(y)]."""
        return self.family.cov(natural)

    def noise_root(self, natural: Natural) -> Float[Array, "k r"]:
        """A root of Cov[T(y)]."""
        return self.family.noise_root(natural)

    def log_prob(self, natural: Natural, y: Event) -> Float[Array, ""]:
        """Log p(y | nu)."""
        return self.family.log_prob(natural, self.inner(y))

    def error(self, natural: Natural, y: Event) -> Natural:
        """T(y) - mean."""
        return self.family.error(natural, self.inner(y))

    def link(self, raw: Raw) -> Natural:
        """The family's own."""
        return self.family.link(raw)

    def score(self, raw: Raw, y: Event) -> Raw:
        """d log p / d raw."""
        return self.family.score(raw, self.inner(y))

    def root(self, raw: Raw) -> Float[Array, "raw r"]:
        """A root of the Fisher matrix."""
        return self.family.root(raw)

    def observe_natural(self, natural: Natural, y: Event) -> Observed:
        """Score, root and log p in natural coordinates."""
        return self.family.observe_natural(natural, self.inner(y))

    def curved(self, raw: Raw) -> Bool[Array, " raw"]:
        """The family's own."""
        return self.family.curved(raw)

    def in_domain(self, targets: np.ndarray) -> np.ndarray:
        """The family's own."""
        return self.family.in_domain(targets)
