"""What the user asked for, and what became of the rows."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from natkal.errors import StreamError
from natkal.settings.fields import DATA, KAFKA, MODEL, OUTPUT, RUN, check_fields, names, option, taken
from natkal.settings.options import LearnerSettings, Options, check_options

TASKS = ("regression", "binary", "multiclass", "count", "positive")
LONGEST_HORIZON = 10_000


def absolute(given: str | os.PathLike[str]) -> str:
    """A file by its absolute path."""
    return str(Path(given).absolute())


@dataclasses.dataclass(frozen=True)
class DataSettings:
    """Which columns there are, and how cells are read."""

    targets: tuple[str, ...] = option(
        dataclasses.MISSING,
        "COLUMN",
        "Column to predict; may be given several times.",
        panel=DATA,
        name="target",
        many=True,
        read=names,
    )
    task: str | None = option(
        None,
        "TASK",
        f"What the target is: {', '.join(TASKS)} (default: inferred).",
        panel=DATA,
        choices=TASKS,
    )
    features: tuple[str, ...] = option(
        (),
        "COLUMNS",
        "Columns to use: a,b:category,... or -c to leave some out (default: all).",
        panel=DATA,
        shown=False,
        read=names,
    )
    classes: tuple[str, ...] = option(
        (),
        "NAMES",
        "All classes of the target (default: those of the first rows).",
        panel=DATA,
        shown=False,
        read=names,
    )
    missing: str = option(
        "impute",
        "impute|reject",
        "A missing feature: its mean so far, or a reject.",
        panel=DATA,
        choices=("impute", "reject"),
    )
    encoding: str = option("utf-8", "NAME", "Encoding of text files: utf-8, cp1252, utf-16, ...", panel=DATA)
    decimal: str = option(
        "auto", "auto|.|,", "Decimal sign, where a column leaves it open.", panel=DATA, choices=("auto", ".", ",")
    )
    sample: int = option(1000, "ROWS", "Rows from which types are inferred (- waits for them).", panel=DATA, least=1)
    key: str | None = option(None, "COLUMN", "Column of keys: one model for each.", panel=DATA)
    pool: bool = option(
        False, None, "With --key: the models share a prior, learned from all.", panel=DATA, spelling=("--pool",)
    )
    sequence: str | None = option(
        None, "COLUMN", "Column of sequences: where it changes, a model's memory starts again.", panel=DATA
    )
    id: str | None = option(None, "COLUMN", "Column of row ids: labels may come later.", panel=DATA)
    label_delay: int = option(0, "ROWS", "A row's label arrives this many rows after it.", panel=DATA, least=0)


@dataclasses.dataclass(frozen=True)
class KafkaSettings:
    """What concerns topics alone."""

    label_topic: str | None = option(None, "TOPIC", "Topic of labels, by --id.", panel=KAFKA)
    group: str | None = option(None, "NAME", "Consumer group (default: the run's name).", panel=KAFKA)
    transactions: bool = option(
        False,
        None,
        "What goes to topics is visible exactly once, at checkpoints.",
        panel=KAFKA,
        spelling=("--transactions",),
    )
    kafka_config: str | None = option(
        None, "FILE", "Settings of the client: lines such as security.protocol=SSL.", panel=KAFKA, read=absolute
    )


@dataclasses.dataclass(frozen=True)
class OutputSettings:
    """What is written."""

    horizon: int | None = option(
        None,
        "ROWS",
        "Forecast so many rows ahead after each row, and score it.",
        panel=MODEL,
        least=1,
        most=LONGEST_HORIZON,
    )
    max_rejects: int | None = option(None, "ROWS", "Stop once more rows than this are rejected.", panel=RUN, least=0)
    predictions: str | None = option(
        None,
        "FILE",
        "Write every prediction here (.csv, .jsonl or kafka://BROKER/TOPIC).",
        panel=OUTPUT,
        formats=("csv", "jsonl"),
        read=os.fspath,
    )
    rejects: str | None = option(
        None,
        "FILE",
        "Write rejected rows here (.jsonl or kafka://BROKER/TOPIC; default: in the run).",
        panel=OUTPUT,
        formats=("jsonl",),
        read=os.fspath,
    )
    metrics: str | None = option(
        None,
        "FILE",
        "Write the running metrics here (default: in the run).",
        panel=OUTPUT,
        formats=("csv",),
        read=os.fspath,
    )
    metrics_every: int | None = option(None, "ROWS", "Rows per line of metrics.", panel=OUTPUT, least=1)


@dataclasses.dataclass(frozen=True)
class Settings(OutputSettings, LearnerSettings, KafkaSettings, DataSettings):
    """What the user asked for: all of it decides the result, so all of it is in the checkpoint."""

    @property
    def options(self) -> Options:
        """The part of it that the learner is made from; a row's past is not known in order where labels come by id."""
        past = "none" if self.id is not None and self.past == "auto" else self.past
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(LearnerSettings)}
        return Options(**{**own, "past": past})


@dataclasses.dataclass(frozen=True)
class HowToRun:
    """How a run is driven; none of it decides the result."""

    until_end: bool = option(
        False,
        None,
        "Stop at the messages that are last now.",
        panel=KAFKA,
        spelling=("--until-end",),
        after="label_topic",
    )
    run: str = option(
        "natkal-run", "FOLDER", "Folder for checkpoints, metrics, rejects, report.", panel=RUN, after="horizon"
    )
    overwrite: bool = option(
        False, None, "Replace the run in the folder.", panel=RUN, spelling=("--overwrite",), after="run"
    )
    checkpoint_every: str = option(
        "30s",
        "ROWS|SECONDS",
        "Rows (10000) or seconds (30s) between checkpoints.",
        panel=RUN,
        read=str,
        after="overwrite",
    )
    ray: str | None = option(
        None,
        "ADDRESS",
        "With --key: learn on a Ray cluster (local starts one; needs natkal[ray]).",
        panel=RUN,
        after="max_rejects",
    )


@dataclasses.dataclass(frozen=True)
class OfTheCommand:
    """What `natkal learn` has and `nk.learn` has not."""

    partition_models: bool = option(
        False,
        None,
        "One model for each partition; more processes share them out.",
        panel=KAFKA,
        spelling=("--partition-models",),
        after="until_end",
    )
    resume: bool = option(
        False, None, "Go on from the run's last checkpoint.", panel=RUN, spelling=("--resume",), after="run"
    )
    report: bool = option(
        True, None, "Write report.html into the run.", panel=OUTPUT, spelling=("--report/--no-report",)
    )
    live: bool = option(
        False, None, "Show a live page of the run (needs natkal[serve]).", panel=OUTPUT, spelling=("--live",)
    )
    as_json: bool = option(False, None, "Print one JSON object and nothing else.", panel=OUTPUT, spelling=("--json",))


def interval(every: str) -> tuple[int | None, float | None]:
    """Rows or seconds between checkpoints, whichever the text says."""
    try:
        rows, seconds = (None, float(every[:-1])) if every.endswith("s") else (int(every), None)
    except ValueError:
        rows, seconds = 0, None
    if not (rows or seconds or 0) > 0:
        raise StreamError(f"--checkpoint-every: write rows (10000) or seconds (30s), got {every!r}")
    return rows, seconds


def check_settings(settings: Settings) -> None:
    """Refuse options that no run can have, in one sentence that names the option."""
    check_fields(settings)
    if settings.learner == "auto" and (settings.prior_scale, settings.fading) != (None, None):
        raise StreamError("--learner: --prior-scale and --fading are for one filter: use single")
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


def make_settings(**given: Any) -> Settings:
    """Settings from options by the names that doors use; all of them checked."""
    settings = taken(Settings, given)
    check_settings(settings)
    return settings


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
