"""`natkal serve`: a run behind HTTP. The README says how the parts fit."""
