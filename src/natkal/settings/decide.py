"""What the user asked for of a bandit."""

import dataclasses
from pathlib import Path

from natkal.settings.fields import names, option

REWARD_KINDS = ("auto", "binary", "number", "count")
POLICIES = ("thompson", "ucb", "epsilon-greedy", "greedy")


@dataclasses.dataclass(frozen=True)
class DecisionSettings:
    """What decides the decisions; all of it is in the checkpoint.

    `id`, `arm`, `reward` and `probability` are names of columns. `reward_kind` "auto" is decided by the first rewards.
    """

    arms: tuple[str, ...] = option((), None, "The arms to choose from: a,b,c (default: those of the log).", read=names)
    id: str = option("id", None, "Column of ids: rewards come back by them.")
    reward: str = option("reward", None, "Column of rewards.")
    arm: str = option("arm", None, "Column of arms: a row that has one was decided elsewhere.")
    probability: str = option("probability", None, "Column of the probabilities of such decisions.")
    reward_kind: str = option(
        "auto", None, "What a reward is (default: binary where the first ones are 0 and 1).", choices=REWARD_KINDS
    )
    policy: str = option("thompson", None, "How an arm is chosen.", choices=POLICIES)
    policy_value: float | None = option(
        None, None, "ucb: deviations. epsilon-greedy: share. thompson: floor, the share of random arms."
    )
    model: str = option("auto", None, "auto, linear or mlp:64,64.")
    ignore: tuple[str, ...] = option((), None, "Columns that say nothing about a context: a,b,c.", read=names)
    seed: int = option(0, None, "Seed of the first weights and of the draws.", least=0)
    decisions: str | None = option(
        None,
        "<path>",
        "Write decisions here, as JSON lines (default: print them).",
        name="out",
        formats=("jsonl",),
    )


@dataclasses.dataclass(frozen=True)
class HowToDecide:
    """How a run of decisions is driven; none of it decides the result."""

    run: Path = option(Path("natkal-decisions"), None, "Folder for checkpoints and rejects.")
    checkpoint_every: str = option("30s", None, "Rows (10000) or seconds (30s) between checkpoints.")
    encoding: str = option("utf-8", None, "Encoding of text files: utf-8, cp1252, utf-16, ...")
    resume: bool = option(False, None, "Go on from the run's last checkpoint.", spelling=("--resume",))
    overwrite: bool = option(False, None, "Replace the run in the folder.", spelling=("--overwrite",))
    report: bool = option(True, None, "Write an HTML report at the end.", spelling=("--report/--no-report",))
    as_json: bool = option(False, None, "Print one JSON object at the end (needs --out).", spelling=("--json",))
