"""Measurements of hidden Markov models."""
