"""What a user runs: sources, the test-then-train loop, metrics, checkpoints."""
