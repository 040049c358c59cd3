"""Many settings and seeds in one scan, and what may be concluded from them."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.questions.cases import Case
from natkal.typing import Array, Params

WORST = 100.0
"""A log loss is cut here, so that one divergence is one divergence and not a mean."""
Setting = dict[str, float]
Scan = Callable[[dict[str, Array], Params, Array, Array], Array]


class Part(NamedTuple):
    """Settings by label, and the scan (setting, params, inputs, targets) -> log p that all of them share."""

    settings: dict[str, Setting]
    scan: Scan


class Job(NamedTuple):
    """A case, the group it is reported in, and what is run on it."""

    case: Case
    group: str
    parts: list[Part]


def learner_scan(build: Callable[[Case, dict[str, Array], Params], Any], case: Case) -> Scan:
    """The scan of the learner that `build` makes of a setting."""

    def scan(setting: dict[str, Array], params: Params, inputs: Array, targets: Array) -> Array:
        learner = build(case, setting, params)

        def step(state: Any, row: tuple[Array, Array]) -> tuple[Any, Array]:
            new_state, info = learner.step(state, *row)
            return new_state, info.log_prob

        return jax.lax.scan(step, learner.init(params), (inputs, targets))[1]

    return scan


def losses(case: Case, part: Part) -> dict[str, np.ndarray]:
    """Mean log loss before learning (seeds,) of each setting; all settings and seeds in one compiled scan."""
    names = list(next(iter(part.settings.values())))
    columns = {name: jnp.asarray([s[name] for s in part.settings.values()], jnp.float32) for name in names}
    seeds = jnp.arange(len(case.inputs))

    def over_seeds(setting: dict[str, Array]) -> Array:
        def one(seed: Array, inputs: Array, targets: Array) -> Array:
            log_prob = part.scan(setting, case.params(seed), inputs, targets)
            return -jnp.mean(jnp.clip(jnp.nan_to_num(log_prob, nan=-WORST), -WORST))

        return jax.vmap(one)(seeds, case.inputs, case.targets)

    found = np.asarray(jax.jit(jax.vmap(over_seeds))(columns), float)
    return dict(zip(part.settings, found, strict=True))


def ask(jobs: Iterable[Job], baseline: Callable[[str], str], report: Callable[[str], None]) -> dict[str, Any]:
    """Run jobs side by side; a row for each case and setting against its baseline, and a summary for each group.

    `baseline` maps a setting's label to that of the one it is compared with.
    """

    def run(job: Job) -> list[dict[str, Any]]:
        found = {label: loss for part in job.parts for label, loss in losses(job.case, part).items()}
        rows = []
        for label, loss in found.items():
            gap = loss - found[baseline(label)]
            low, high = interval(gap)
            rows.append(
                {
                    "stream": job.case.stream,
                    "model": job.case.model,
                    "group": job.group,
                    "setting": label,
                    "log_loss": float(loss.mean()),
                    "difference": float(gap.mean()),
                    "low": low,
                    "high": high,
                }
            )
        report(f"{job.case.stream}, {job.case.model}, {job.group}")
        return rows

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = [row for rows in pool.map(run, list(jobs)) for row in rows]
    return {"rows": rows, "summary": summary(rows)}


def interval(values: np.ndarray) -> tuple[float, float]:
    """The 95 percent t-interval of the mean."""
    from scipy.stats import t

    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Over the cases of a group: median difference, t-interval of the mean one, clearly better and worse cases."""
    found = []
    for model, group, setting in dict.fromkeys((row["model"], row["group"], row["setting"]) for row in rows):
        here = [row for row in rows if (row["model"], row["group"], row["setting"]) == (model, group, setting)]
        gaps = np.array([row["difference"] for row in here])
        low, high = interval(gaps) if len(gaps) > 1 else (float("nan"), float("nan"))
        found.append(
            {
                "model": model,
                "group": group,
                "setting": setting,
                "median_difference": float(np.median(gaps)),
                "mean_difference": float(gaps.mean()),
                "low": low,
                "high": high,
                "better": sum(row["high"] < 0 for row in here),
                "worse": sum(row["low"] > 0 for row in here),
                "cases": len(here),
            }
        )
    return found
