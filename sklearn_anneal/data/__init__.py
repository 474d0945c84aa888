"""Data points in memory, in tables and in parts. Nothing here depends on a model or a method."""
