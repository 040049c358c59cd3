"""What a person runs."""
