"""Kernels in numpy, for predictions of few rows: a process that only predicts needs no numba.

Each module has the name of the module of compiled kernels whose place it takes, and its functions
have the names of these kernels. Results are equal up to rounding. Fits call compiled kernels alone.
"""
