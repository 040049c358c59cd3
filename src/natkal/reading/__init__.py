"""Rows from files and pipes."""
