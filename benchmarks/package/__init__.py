"""Costs of the package as a whole (import, installation, memory), and digests of its results."""
