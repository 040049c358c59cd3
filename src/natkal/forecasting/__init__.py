"""Several rows ahead."""
