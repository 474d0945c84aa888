"""Data in parts: files larger than memory, the path in memory, clusters, and what they cost."""
