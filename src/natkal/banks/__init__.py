"""Many learners, mixed by likelihood; and the one to start with."""

from natkal.banks.auto import auto
from natkal.banks.bank import Bank, BankInfo, BankState, bank
from natkal.banks.mixture import Mixture
from natkal.banks.monitor import Monitor, monitor
from natkal.banks.standardize import Standardized
from natkal.banks.voices import voices_for

__all__ = [
    "Bank",
    "BankInfo",
    "BankState",
    "Mixture",
    "Monitor",
    "Standardized",
    "auto",
    "bank",
    "monitor",
    "voices_for",
]
