"""Measurements of the factorisation of ratings: speed, and the papers' claims."""
