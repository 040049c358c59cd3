"""Which learner a table gets."""
