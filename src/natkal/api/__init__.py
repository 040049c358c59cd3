"""What a person calls from Python: `nk.learn`, `nk.load_run` and the `Run` they give."""

from natkal.api.learn_table import learn, load_run
from natkal.api.run_result import Run

__all__ = ["Run", "learn", "load_run"]
