"""How programs are compiled, and kept."""
