"""Measurements of gamma-process non-negative matrix factorisation: speed, and what papers claim."""
