"""What is kept of decisions for the report: windows over time, propensities, and sums for the value of simple policies.

For a decision with probability p of its arm a and reward r, the value of "always arm b" is sum [a = b] r / p over
sum [a = b] / p, and that of a uniform choice sum r / p over sum 1 / p: self-normalised (`decisions/off_policy.py`).
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from natkal.decisions.off_policy import Estimate, OffPolicySums

MOST_WINDOWS = 128
"""Windows are joined in pairs when there are more, so that a run of any length is kept in little room."""
SHOWN_WINDOWS = 40
"""Windows of a picture, at most."""
FIRST_WINDOW = 10
"""Decisions of a window at the start."""
BINS = 10
"""Bins of the propensities, on [0, 1]."""


@dataclasses.dataclass
class Window:
    """Some decisions in their order, and the rewards that came meanwhile."""

    decisions: int = 0
    chosen: dict[str, int] = dataclasses.field(default_factory=dict)
    chances: float = 0.0
    """Sum of the probabilities of the chosen arms, where they are known."""
    probable: int = 0
    """How many are known."""
    rewards: int = 0
    paid: float = 0.0
    weighted: float = 0.0
    """Of a log: sum of w r, which values the policy on it."""

    def join(self, other: "Window") -> "Window":
        """Both together."""
        names = dict.fromkeys([*self.chosen, *other.chosen])
        return Window(
            self.decisions + other.decisions,
            {name: self.chosen.get(name, 0) + other.chosen.get(name, 0) for name in names},
            self.chances + other.chances,
            self.probable + other.probable,
            self.rewards + other.rewards,
            self.paid + other.paid,
            self.weighted + other.weighted,
        )


@dataclasses.dataclass
class DecisionRecord:
    """Decisions of one kind, the run's own or those of a log."""

    size: int = FIRST_WINDOW
    """Decisions of a full window."""
    windows: list[Window] = dataclasses.field(default_factory=lambda: [Window()])
    propensities: list[int] = dataclasses.field(default_factory=lambda: [0] * BINS)
    own: OffPolicySums = dataclasses.field(default_factory=OffPolicySums)
    """Rewards of the decisions as they were taken."""
    uniform: OffPolicySums = dataclasses.field(default_factory=OffPolicySums)
    arms: dict[str, OffPolicySums] = dataclasses.field(default_factory=dict)
    """The policy that always takes one arm."""

    def decided(self, arms: Sequence[str], chances: np.ndarray) -> None:
        """Some more decisions; a probability that is not known is NaN."""
        known = chances[~np.isnan(chances)]
        self.propensities = [
            there + int(new) for there, new in zip(self.propensities, np.histogram(known, BINS, (0, 1))[0], strict=True)
        ]
        for arm, chance in zip(arms, chances.tolist(), strict=True):
            window = self._open()
            window.decisions += 1
            window.chosen[arm] = window.chosen.get(arm, 0) + 1
            if chance == chance:
                window.chances += chance
                window.probable += 1

    def rewarded(
        self,
        arms: Sequence[str],
        chances: np.ndarray,
        rewards: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> None:
        """Rewards of some decisions; `weights` are those of the policy on a log."""
        window = self.windows[-1]
        known = ~np.isnan(rewards)
        window.rewards += int(known.sum())
        window.paid += float(rewards[known].sum())
        known &= ~np.isnan(chances)
        if not known.any():
            return
        names = np.asarray(arms)[known]
        reward, inverse = rewards[known], 1 / chances[known]
        if weights is not None:
            window.weighted += float((weights[known] * reward).sum())
        nothing = np.zeros(len(reward))
        self.own.add(reward, np.ones(len(reward)), nothing)
        self.uniform.add(reward, inverse, nothing)
        for name in dict.fromkeys(names.tolist()):
            here = names == name
            self.arms.setdefault(name, OffPolicySums()).add(reward[here], inverse[here], nothing[here])

    def logged(self, arms: Sequence[str], chances: np.ndarray, rewards: np.ndarray, weights: np.ndarray) -> None:
        """Decisions of a log with their rewards, each in the window of its decision."""
        first = 0
        while first < len(arms):
            part = slice(first, first + self.size - self._open().decisions)
            self.decided(arms[part], chances[part])
            self.rewarded(arms[part], chances[part], rewards[part], weights[part])
            first = part.stop

    def _open(self) -> Window:
        """The window of the next decision."""
        if self.windows[-1].decisions >= self.size:
            if len(self.windows) >= MOST_WINDOWS:
                self.windows = [a.join(b) for a, b in zip(self.windows[::2], self.windows[1::2], strict=True)]
                self.size *= 2
            self.windows.append(Window())
        return self.windows[-1]

    # -- values --------------------------------------------------------------------------------------------------------

    @property
    def decisions(self) -> int:
        """How many there were."""
        return sum(window.decisions for window in self.windows)

    def values(self) -> dict[str, Estimate]:
        """Reward per decision: as decided, of a uniform choice, and of the arm that would have paid most alone.

        Empty while there are not two rewards with known probabilities.
        """
        if self.own.rows < 2:
            return {}
        alone = {name: self.alone(name) for name in self.arms}
        best = max(alone, key=lambda name: alone[name].value)
        return {
            "as decided": self.own.estimates(modelled=False).logged,
            "uniform choice": self.uniform.estimates(modelled=False).self_normalised,
            f"always {best}": alone[best],
        }

    def alone(self, arm: str) -> Estimate:
        """What one arm would have paid."""
        return self.arms[arm].estimates(modelled=False).self_normalised

    def series(self, most: int = SHOWN_WINDOWS) -> dict[str, list[float | None]]:
        """By window: decisions so far, mean reward, mean probability of the choice, and the share of each arm."""
        shown = [window for window in self.windows if window.decisions]
        together = -(-len(shown) // most) or 1
        parts = [shown[first : first + together] for first in range(0, len(shown), together)]
        shown = [functools.reduce(Window.join, part) for part in parts]
        names = dict.fromkeys(name for window in shown for name in window.chosen)
        found: dict[str, list[float | None]] = {
            "decision": np.cumsum([window.decisions for window in shown]).tolist(),
            "reward": [window.paid / window.rewards if window.rewards else None for window in shown],
            "probability": [window.chances / window.probable if window.probable else None for window in shown],
        }
        for name in names:
            found[f"arm {name}"] = [window.chosen.get(name, 0) / window.decisions for window in shown]
        return found

    # -- on disk -------------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """For a checkpoint."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        """The record that `to_json` wrote."""
        return cls(
            size=int(kept["size"]),
            windows=[Window(**window) for window in kept["windows"]],
            propensities=[int(count) for count in kept["propensities"]],
            own=OffPolicySums(**kept["own"]),
            uniform=OffPolicySums(**kept["uniform"]),
            arms={str(name): OffPolicySums(**sums) for name, sums in kept["arms"].items()},
        )
