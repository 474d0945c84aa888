"""Measurements of topic models: speed, and the papers' claims."""
