"""Running scales of inputs and targets."""
