"""Many learners, mixed by likelihood; and the one to start with."""

from natkal.learners.auto import auto
from natkal.learners.averaged import Averaged, averaged
from natkal.learners.bank import Bank, BankInfo, BankState, bank
from natkal.learners.ensemble import Ensemble, ensemble
from natkal.learners.mixture import Mixture
from natkal.learners.monitor import Monitor, monitor
from natkal.learners.predictive import voices_for
from natkal.learners.scaled import Standardized

__all__ = [
    "Averaged",
    "Bank",
    "BankInfo",
    "BankState",
    "Ensemble",
    "Mixture",
    "Monitor",
    "Standardized",
    "auto",
    "averaged",
    "bank",
    "ensemble",
    "monitor",
    "voices_for",
]
