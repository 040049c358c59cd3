"""What each column of a table is, from its first rows; no JAX."""
