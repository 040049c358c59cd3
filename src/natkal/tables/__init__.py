"""Rows of a table to numbers to predictions."""
