"""Measurements of hidden Markov models: speed, and the papers' claims."""
