"""Learners made of filters, all of them the one `Learner` protocol."""

from natkal.learners.auto import auto
from natkal.learners.averaged import Averaged, averaged
from natkal.learners.bank import Bank
from natkal.learners.bank_state import BankInfo, BankState
from natkal.learners.ensemble import ensemble
from natkal.learners.laws import laws_for
from natkal.learners.make_bank import bank
from natkal.learners.mixture import Mixture
from natkal.learners.monitor import Monitor, monitor
from natkal.learners.scaled import Scaled
from natkal.learners.selection import Selection

__all__ = [
    "Averaged",
    "Bank",
    "BankInfo",
    "BankState",
    "Mixture",
    "Monitor",
    "Scaled",
    "Selection",
    "auto",
    "averaged",
    "bank",
    "ensemble",
    "laws_for",
    "monitor",
]
