"""What the user asked for, and what became of the rows."""

import dataclasses
from typing import Any

from natkal.errors import StreamError
from natkal.settings.options import Options, check_options

MISSING = ("impute", "reject")
LEAST = {"label_delay": 0, "seed": 0, "sample": 1, "horizon": 1, "metrics_every": 1, "max_rejects": 0}
"""Options that are whole numbers, and the smallest of each."""
LONGEST_HORIZON = 10_000


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
    pool: bool = False
    sequence: str | None = None
    id: str | None = None
    label_delay: int = 0
    learner: str = "auto"
    model: str = "auto"
    prior_scale: float | None = None
    fading: float | None = None
    past: str = "auto"
    budget: str = "auto"
    memory: str | int | None = None
    level: float = 0.9
    seed: int = 0
    sample: int = 1000
    metrics_every: int | None = None
    max_rejects: int | None = None
    predictions: str | None = None
    metrics: str | None = None
    rejects: str | None = None
    horizon: int | None = None
    label_topic: str | None = None
    group: str | None = None
    kafka_config: str | None = None
    transactions: bool = False

    @property
    def options(self) -> Options:
        """The part of it that the learner is made from; a row's past is not known in order where labels come by id."""
        past = "none" if self.id is not None and self.past == "auto" else self.past
        return Options(
            learner=self.learner,
            model=self.model,
            prior_scale=self.prior_scale,
            fading=self.fading,
            seed=self.seed,
            past=past,
            budget=self.budget,
            memory=self.memory,
            level=self.level,
        )


def check_settings(settings: Settings) -> None:
    """Refuse options that no run can have, in one sentence that names the option."""
    if settings.missing not in MISSING:
        raise StreamError(f"--missing: must be one of {', '.join(MISSING)}, got {settings.missing!r}")
    for name, least in LEAST.items():
        value = getattr(settings, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            option = name.replace("_", "-")
            raise StreamError(f"--{option}: must be a whole number, {least} or more, got {value!r}")
    if settings.horizon is not None and settings.horizon > LONGEST_HORIZON:
        raise StreamError(f"--horizon: must be at most {LONGEST_HORIZON:,} rows, got {settings.horizon:,}")
    check_options(settings.options)
    _check_roles(settings)


def _check_roles(settings: Settings) -> None:
    """Refuse a column that is to be two things at once."""
    roles: dict[str, str] = {}
    columns = [*((name, "--target") for name in settings.targets)]
    columns += [(name, role) for name, role in ((settings.key, "--key"), (settings.id, "--id")) if name is not None]
    columns += [] if settings.sequence is None else [(settings.sequence, "--sequence")]
    for name, role in columns:
        if name in roles:
            what = "names the column twice" if roles[name] == role else f"is the column of {roles[name]} already"
            raise StreamError(f"{role}: {name!r} {what}")
        roles[name] = role
    for entry in settings.features:
        name = entry if entry in roles else entry.rpartition(":")[0]
        if name in roles:
            raise StreamError(f"--features: {name!r} is the column of {roles[name]}, and no feature")


def check_same(given: Any, kept: Any, *, whole: bool) -> None:
    """Refuse to go on with other settings than those of the run; unless `whole`, a default is one that was left out."""
    for field in dataclasses.fields(kept):
        new, old = getattr(given, field.name), getattr(kept, field.name)
        if new != old and (whole or new != field.default):
            raise StreamError(
                f"--resume: the run was started with another --{field.name.replace('_', '-')} ({old!r}); leave the "
                "options out to go on as before"
            )


@dataclasses.dataclass
class Counts:
    """Rows so far: read = learned + rejected + skipped, always."""

    read: int = 0
    learned: int = 0
    rejected: int = 0
    skipped: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(own + more for own, more in zip(vars(self).values(), vars(other).values(), strict=True)))

    def accounting(self, used: str = "learned") -> str:
        """The equation in words, with the share of each part that is neither none nor all of the rows."""
        parts = {used: self.learned, "rejected": self.rejected, "skipped": self.skipped}
        told = [
            f"{name} {count:,}" + (f" ({percent(count / self.read)})" if 0 < count < self.read else "")
            for name, count in parts.items()
        ]
        return f"read {self.read:,} = {' + '.join(told)}"


def percent(share: float) -> str:
    """A share with as many digits as tell it from none and from all."""
    size = 100 * min(share, 1 - share)
    digits = 0 if size >= 10 else 1 if size >= 0.1 else 2 if size >= 0.01 else 4
    return f"{100 * share:.{digits}f}%"
