"""Measurements of gamma-process factorisation: speed, and results on drawn and real counts."""
