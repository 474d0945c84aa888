"""Measurements of factorial mixtures."""
