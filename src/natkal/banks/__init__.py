"""Many filters, mixed by what each predicted before it saw."""

from natkal.banks.auto import auto
from natkal.banks.bank import Bank
from natkal.banks.make_bank import bank
from natkal.banks.mixture import Mixture
from natkal.banks.monitor import Monitor, monitor
from natkal.banks.scaled import Scaled
from natkal.banks.selection import Selection
from natkal.banks.state import BankInfo, BankState

__all__ = ["Bank", "BankInfo", "BankState", "Mixture", "Monitor", "Scaled", "Selection", "auto", "bank", "monitor"]
