"""Random fits, refusals and streams of all estimators, for ``tests/fuzz.py`` and a test.

``draw`` makes cases from the entries of ``models``, ``forms`` has the forms in which data are
given, ``faults`` what is bad about data and parameters, ``properties`` what has to hold in every
case, and ``run`` runs a case.
"""
