"""Measurements of sigmoid belief nets."""
