"""What the package as a whole costs: import, installation and memory; digests of its results."""
