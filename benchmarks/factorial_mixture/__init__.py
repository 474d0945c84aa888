"""Measurements of factorial mixtures: speed, and the papers' claims."""
