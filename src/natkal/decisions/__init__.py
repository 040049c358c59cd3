"""Contextual bandits: decisions from the posterior that a filter already has."""

from natkal.decisions.contextual import Bandit, BanditState, Decision, bandit
from natkal.decisions.policies import Policy, epsilon_greedy, greedy, thompson, ucb

__all__ = ["Bandit", "BanditState", "Decision", "Policy", "bandit", "epsilon_greedy", "greedy", "thompson", "ucb"]
