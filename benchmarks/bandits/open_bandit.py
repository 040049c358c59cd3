"""The Open Bandit sample that comes with `obp`: a bandit replayed on a log of random decisions.

The data are read from the package's files; the package itself is not imported. The value of a bandit that learns along
the random log is estimated and set beside what the logged policies earned, random and Bernoulli Thompson sampling.
"""

import csv
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import natkal as nk

CAMPAIGNS = ("all", "men", "women")


def folder() -> Path:
    """Where the sample lies."""
    found = importlib.util.find_spec("obp")
    if found is None or found.origin is None:
        raise SystemExit("bandits open-bandit: needs the files of obp: pip install --no-deps obp")
    return Path(found.origin).parent / "dataset" / "obd"


def read(policy: str, campaign: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Items, positions, clicks, probabilities, and the features of the items."""
    place = folder() / policy / campaign
    with (place / f"{campaign}.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (place / "item_context.csv").open() as file:
        items = list(csv.DictReader(file))
    kinds = [sorted({item[f"item_feature_{number}"] for item in items}) for number in (1, 2, 3)]
    features = np.array(
        [
            [float(item["item_feature_0"])]
            + [
                float(item[f"item_feature_{number}"] == kind)
                for number, known in zip((1, 2, 3), kinds, strict=True)
                for kind in known
            ]
            for item in items
        ]
    )
    return (
        np.array([int(row["item_id"]) for row in rows]),
        np.array([int(row["position"]) for row in rows]),
        np.array([float(row["click"]) for row in rows]),
        np.array([float(row["propensity_score"]) for row in rows]),
        features,
    )


def rows(report: Callable[[str], None]) -> list[dict[str, Any]]:
    """One row for each campaign."""
    found = []
    for campaign in CAMPAIGNS:
        items, positions, clicks, chances, features = read("random", campaign)
        arms = np.concatenate([np.eye(len(features)), features], axis=1).astype(np.float32)

        def apply(params: Any, inputs: Any) -> Any:
            return params["arm"] @ inputs["arm"] + params["shared"] @ inputs["shared"]

        params = {"arm": jnp.zeros(arms.shape[1]), "shared": jnp.zeros(4)}
        bandit = nk.bandit(nk.static_model(apply, params, nk.families.Bernoulli()))
        shared = np.concatenate([np.ones((len(items), 1)), np.eye(3)[positions - 1]], axis=1).astype(np.float32)
        contexts = {"shared": shared, "arms": np.broadcast_to(arms, (len(items), *arms.shape))}
        replayed = nk.replay(bandit, nk.DecisionLog(contexts, items, clicks, chances))
        thompson = read("bts", campaign)[2]
        row: dict[str, Any] = {"campaign": campaign, "rows": len(items), "logged_random": float(clicks.mean())}
        row["logged_thompson"] = float(thompson.mean())
        for name in ("inverse_propensity", "self_normalised", "doubly_robust"):
            estimate = getattr(replayed.value, name)
            low, high = estimate.interval()
            row[name] = estimate.value
            row[f"{name}_interval"] = f"{low:.4f} to {high:.4f}"
        row["effective_rows"] = replayed.value.effective
        report(str(row))
        found.append(row)
    return found
