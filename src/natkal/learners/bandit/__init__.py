"""Contextual bandits: decisions from the posterior that a filter already has."""

from natkal.learners.bandit.contextual import Bandit, BanditState, Decision, bandit
from natkal.learners.bandit.policies import Policy, epsilon_greedy, greedy, thompson, ucb

__all__ = ["Bandit", "BanditState", "Decision", "Policy", "bandit", "epsilon_greedy", "greedy", "thompson", "ucb"]
