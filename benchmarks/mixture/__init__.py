"""Measurements of mixtures of binary columns and categories."""
