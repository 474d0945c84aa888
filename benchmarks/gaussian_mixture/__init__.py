"""Measurements of Gaussian mixtures: speed, and the papers' claims."""
