"""What a user may say about the learner, in every door alike."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from natkal.byte_sizes import parse_bytes
from natkal.errors import StreamError
from natkal.settings.fields import MODEL, OUTPUT, option

LEARNERS = ("auto", "single")
BUDGETS = ("fast", "auto", "best")
MAPS = ("linear", "products")
"""Models that are linear in what they make of a row."""
CELLS = ("rnn", "gru", "lstm", "lru", "rtu")
SINGLE_PRIOR_SCALE, SINGLE_FADING = 1.0, 3e-4


def lags_text(given: str | int | Sequence[int]) -> str:
    """Lags as text: a word or 1,2,48 as they are, a number or several of them written so."""
    return given if isinstance(given, str) else ",".join(map(str, [given] if isinstance(given, int) else given))


@dataclasses.dataclass(frozen=True)
class LearnerSettings:
    """`learner`: `auto` is a bank of filters weighed by the data, `single` one filter with this prior and fading.

    `model`: `auto` (several architectures), `linear`, `products`, `mlp:64,64`, `rnn:8`, `gru:8`, `lstm:8`, `lru:64`,
    `rtu:32`, or a function of the user's own as package.module:function. `past`: which earlier targets are inputs:
    `auto`, `none`, or lags as 1,2,48.
    `budget`: `fast` runs few members, `auto` stops those that have lost, `best` lets all of them run, and a number is
    about how many microseconds a row may take (see choose.py). `memory`: the most bytes of the learner's state, as 1MB.
    `level`: the share of targets that intervals hold.
    """

    model: str = option(
        "auto",
        "MODEL",
        "auto, linear, mlp:64,64, gru:8 (rnn, lstm, rtu, lru alike) or package.module:function.",
        panel=MODEL,
    )
    past: str = option(
        "auto",
        "LAGS",
        "Earlier targets as inputs: auto, none, or lags such as 1,2,48.",
        panel=MODEL,
        read=lags_text,
    )
    budget: str = option(
        "auto",
        "fast|auto|best|US",
        "fast: few members. auto: stop those that have lost. best: all of them. A number: about so many microseconds a "
        "row.",
        panel=MODEL,
        read=str,
    )
    memory: str | int | None = option(
        None, "SIZE", "The most that the learner's state may take: 128kB, 1MB.", panel=MODEL
    )
    learner: str | None = option(
        None,
        "auto|single",
        "auto: a bank of filters with nothing to tune. single: one filter, far quicker.",
        panel=MODEL,
        choices=LEARNERS,
    )
    prior_scale: float | None = option(
        None, "NUMBER", "single: prior variance of a weight, times 1/fan-in (default 1).", panel=MODEL
    )
    fading: float | None = option(
        None, "SHARE", "single: share of the past forgotten at each row, in [0, 1) (default 3e-4).", panel=MODEL
    )
    seed: int = option(0, "NUMBER", "Seed of the first weights.", panel=MODEL, least=0)
    level: float = option(
        0.9,
        "SHARE",
        "Share of targets that the intervals of predictions hold.",
        panel=OUTPUT,
        least=0.01,
        most=0.999,
        after="rejects",
    )


@dataclasses.dataclass(frozen=True)
class Options(LearnerSettings):
    """What a learner is made from. `forget`: whether members may forget earlier rows; rows in no order in time, as
    those of scikit-learn's `fit`, all count alike.
    """

    standardize: bool = True
    forget: bool = True

    @property
    def single(self) -> bool:
        """Whether one filter runs: asked for, or a prior or a fading was given."""
        return self.learner == "single" or self.prior_scale is not None or self.fading is not None

    @property
    def microseconds(self) -> float | None:
        """The time that a row may take, where the budget is one."""
        return None if self.budget in BUDGETS else float(self.budget)

    @property
    def bytes(self) -> int | None:
        """The most that the learner's state may take."""
        return None if self.memory is None else parse_bytes(self.memory)

    @property
    def cell(self) -> str | None:
        """The kind of recurrent cell, where the model is one."""
        name, colon, _ = self.model.partition(":")
        return name if colon and name in CELLS else None

    @property
    def has_memory(self) -> bool:
        """Whether the model carries a state from row to row."""
        return self.cell is not None

    @property
    def users_own(self) -> bool:
        """Whether the model is a function of the user's own."""
        return ":" in self.model and not self.model.startswith("mlp:") and self.cell is None


def check_options(options: Options) -> None:
    """Refuse what no learner can be built from, in one sentence that names the option."""
    if options.learner not in (None, *LEARNERS):
        raise StreamError(f"learner: must be one of {', '.join(LEARNERS)}, got {options.learner!r}")
    if options.budget not in BUDGETS and not re.fullmatch(r"0*[1-9]\d*(\.\d+)?", options.budget):
        known = ", ".join(BUDGETS)
        raise StreamError(f"budget: write {known}, or microseconds a row such as 50, got {options.budget!r}")
    if options.memory is not None and parse_bytes(options.memory) is None:
        raise StreamError(f"memory: write 128kB, 1MB or 2GB, got {options.memory!r}")
    if not 0 < options.level < 1:
        raise StreamError(f"level: must lie between 0 and 1, got {options.level!r}")
    if options.prior_scale is not None and not 0 < options.prior_scale < float("inf"):
        raise StreamError(f"prior_scale: must be positive and finite, got {options.prior_scale!r}")
    if options.fading is not None and not 0 <= options.fading < 1:
        raise StreamError(f"fading: must lie in [0, 1), got {options.fading!r}")
    _check_model(options)
    past_lags(options.past)


def past_lags(past: str) -> tuple[int, ...] | None:
    """The lags that were named; an empty tuple for none of them, None where they are to be found out."""
    if past in ("auto", "none"):
        return None if past == "auto" else ()
    if re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", past):
        return tuple(sorted({int(lag) for lag in past.split(",")}))
    raise StreamError(f"past: write auto, none, or lags such as 1,2,48, got {past!r}")


def _check_model(options: Options) -> None:
    model = options.model
    if model in ("auto", *MAPS) or options.users_own:
        return
    name, _, sizes = model.partition(":")
    good = re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", sizes) is not None
    if name == "mlp":
        if not good:
            raise StreamError(f"model: write mlp:64 or mlp:64,64 (units of each hidden layer), got {model!r}")
    elif options.cell is not None:
        if not good or "," in sizes:
            raise StreamError(f"model: write {name}:8 (how many units), got {model!r}")
    else:
        raise StreamError(f"model: {model!r} is not auto, linear, mlp:64,64, gru:8 or package.module:function")


def make_options(**given: Any) -> Options:
    """Options from what was given, checked."""
    options = Options(**given)
    check_options(options)
    return options
