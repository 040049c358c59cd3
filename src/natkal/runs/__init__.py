"""A run and its checkpoints."""
