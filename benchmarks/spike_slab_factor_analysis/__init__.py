"""Measurements of spike-and-slab factor analysis: speed, and results on drawn data."""
