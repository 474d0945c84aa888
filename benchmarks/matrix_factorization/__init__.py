"""Measurements of the factorisation of ratings."""
