"""Measurements of Gaussian mixtures."""
