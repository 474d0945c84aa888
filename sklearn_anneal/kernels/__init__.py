"""Hot loops, compiled with numba: free functions on arrays, without state.

The modules of this package import numba. They are therefore imported only where a kernel
is needed, never at the import of :mod:`sklearn_anneal`.
"""
