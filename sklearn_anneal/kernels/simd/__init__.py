"""Loops that are written out in vector instructions, because compilers do badly with them.

They are intrinsics of numba: functions that compiled code calls, and whose instructions llvmlite
emits into it. ``emitter.py`` has the instructions on vectors, checks of bounds, and the sizes to
which kernels pad their rows. The functions on it are in ``products.py`` (a vector times a few rows
of a table, as in topics and factorizations), ``rows.py`` (sums over rows that are picked by their
numbers, as in mixtures), ``chains.py`` (steps along chains of states) and ``tiles.py`` (products of
small matrices, of which each lane has its own, as for missing cells).

A sum whose order is fixed keeps a compiler from using vectors. Here the order is written out
together with the instructions, so that it is fixed and the same on every machine.
``doc/results/simd.md`` compares each function with the loop that it replaces.
"""
