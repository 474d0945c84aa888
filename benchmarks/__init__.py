"""Measurements of the package: run them as modules from the root of the repository."""
