"""Data in parts: files larger than memory, formats of files, and clusters."""
