"""Measurements of sigmoid belief nets: bad starts, and held-out rows."""
