"""What the user asked for, and what became of the rows."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Choice:
    """What the user may say about the learner: `auto` is a bank of filters, `single` one with this prior and fading."""

    learner: str = "auto"
    model: str = "auto"
    prior_scale: Any = 1.0
    fading: float = 3e-4
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the user asked for: all of it decides the result, so all of it is in the checkpoint."""

    targets: tuple[str, ...]
    task: str | None = None
    features: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    missing: str = "impute"
    encoding: str = "utf-8"
    decimal: str = "auto"
    key: str | None = None
    sequence: str | None = None
    id: str | None = None
    label_delay: int = 0
    learner: str = "auto"
    model: str = "auto"
    prior_scale: float = 1.0
    fading: float = 3e-4
    seed: int = 0
    sample: int = 1000
    metrics_every: int | None = None
    max_rejects: int | None = None
    predictions: str | None = None
    metrics: str | None = None

    @property
    def choice(self) -> Choice:
        """The part of it that the learner is made from."""
        return Choice(self.learner, self.model, self.prior_scale, self.fading, self.seed)


@dataclasses.dataclass
class Counts:
    """Rows so far: read = learned + rejected + skipped, always."""

    read: int = 0
    learned: int = 0
    rejected: int = 0
    skipped: int = 0
