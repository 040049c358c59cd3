"""Rows to numbers; no JAX."""
