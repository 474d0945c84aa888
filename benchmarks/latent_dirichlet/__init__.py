"""Measurements of topic models."""
